"""CPU time of a process with all its descendants, read from outside."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import numpy as np
import psutil

_END_SECS = 5.0  # for processes that were killed


class TreeCpu:
    """Samples the CPU time of a process and all its descendants while the block lasts.

        with TreeCpu(process.pid) as cpu:
            process.wait()
        cpu.between(begin, end)

    A sample costs a few ms of CPU of this process. What a process has used is counted
    beyond its death if its parent, too of the tree, has waited for it.
    """

    def __init__(self, pid: int, period_secs: float = 0.5):
        self._root = psutil.Process(pid)
        self._period_secs = period_secs
        self._seen: set[psutil.Process] = set()
        self._times: list[float] = []
        self._totals: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"cpu of {pid}")

    def __enter__(self) -> TreeCpu:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._end.set()
        self._thread.join()
        self._sample()

    def between(self, begin: float, end: float) -> float:
        """CPU seconds between two readings of `time.time()`, linear between samples.

        Raises ValueError for times outside of the block.
        """
        first, last = self._times[0], self._times[-1]
        if not first <= begin <= end <= last:
            raise ValueError(f"sampled from {first} to {last}, not {begin} to {end}")
        # The dead take what nobody waited for along; it was used all the same.
        totals = np.maximum.accumulate(self._totals)
        at_begin, at_end = np.interp([begin, end], self._times, totals)
        return float(at_end - at_begin)

    def kill(self) -> None:
        """Ends every process of the tree that was ever seen and still runs."""
        self._see()
        for process in self._seen:
            with contextlib.suppress(psutil.Error):  # it has ended
                process.kill()
        psutil.wait_procs(self._seen, _END_SECS)

    def _watch(self) -> None:
        while not self._end.wait(self._period_secs):
            self._sample()

    def _sample(self) -> None:
        total = sum(map(_cpu_secs, self._see()))
        self._times.append(time.time())
        self._totals.append(total)

    def _see(self) -> list[psutil.Process]:
        """The living processes of the tree."""
        try:
            tree = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        self._seen.update(tree)
        return tree


def _cpu_secs(process: psutil.Process) -> float:
    """User and system seconds, with those of the children that it has waited for."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    own = times.user + times.system
    return own + times.children_user + times.children_system
