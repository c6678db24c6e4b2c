"""The processes of a launched run, found and watched from outside."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import time
from collections.abc import Iterator, Sequence

import psutil

PERIOD_SECS = 0.5
_HOSTS = ("--ps_hosts=", "--memory_hosts=", "--learner_hosts=")
_SHARED_MEMORY = pathlib.Path("/dev/shm")


def task_name(arguments: Sequence[str]) -> str | None:
    """For example "actor/1", of a command line; None for what is no task."""
    options = dict(w.partition("=")[::2] for w in arguments if w.startswith("--"))
    job, index = options.get("--job_name"), options.get("--task_index")
    return f"{job}/{index}" if job and index else None


def ports_of(arguments: Sequence[str]) -> set[int]:
    """On which the servers of a run listen, of the command line of one of its tasks."""
    lists = [word.partition("=")[2] for word in arguments if word.startswith(_HOSTS)]
    hosts = [host for text in lists for host in text.split(",") if host]
    return {int(host.rpartition(":")[2]) for host in hosts}


def shared_memory() -> set[str]:
    """The names in /dev/shm."""
    found = _SHARED_MEMORY.iterdir() if _SHARED_MEMORY.is_dir() else ()
    return {path.name for path in found}


class RunProcesses:
    """A launcher and all that comes of it; looks every half second while open.

    What is seen once is remembered, so that what outlives the launcher, by which it
    could be found no more, is known. `run_dir` tells the run's tasks from others.
    """

    def __init__(self, launcher: int, run_dir: pathlib.Path):
        self._launcher = psutil.Process(launcher)
        self._flag = f"--run_dir={run_dir}"
        self._seen: set[psutil.Process] = {self._launcher}
        self._sessions = {launcher}
        self.ports: set[int] = set()
        self._others: list[psutil.Process] = []  # started by hand
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watch {launcher}")
        self._thread.start()

    def add(self, pid: int) -> None:
        """Takes in a task that was started by hand."""
        with self._lock:
            self._others.append(psutil.Process(pid))
        self.look()

    def close(self) -> None:
        """Ends the thread."""
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(PERIOD_SECS):
            self.look()

    def look(self) -> None:
        """Notes who is there."""
        tree: list[psutil.Process] = []
        for root in [self._launcher, *self._others]:
            with contextlib.suppress(psutil.NoSuchProcess):
                tree += [root, *root.children(recursive=True)]
        with self._lock:
            self._seen |= set(tree)
            for process in tree:  # again and again: it may not yet be what it will be
                with contextlib.suppress(ProcessLookupError, psutil.Error):
                    self._sessions |= {os.getsid(process.pid)} - {os.getsid(0)}
                    self.ports = self.ports or ports_of(process.cmdline())

    def tasks(self) -> dict[str, psutil.Process]:
        """The tasks that run, by job/index: children of the launcher, and by hand."""
        found = {}
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = self._launcher.children()
        for process in [*children, *self._others]:
            with contextlib.suppress(psutil.Error):
                name = task_name(process.cmdline())  # [] for one that has ended
                if name is not None:
                    found[name] = process
        return found

    def living(self) -> list[psutil.Process]:
        """What still runs: what was seen, in the sessions of what was seen, or with
        this run's folder in its command line."""
        self.look()
        return [p for p in psutil.process_iter() if self._is_ours(p) and _lives(p)]

    def _is_ours(self, process: psutil.Process) -> bool:
        if process in self._seen:
            return True
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            session = os.getsid(process.pid)
            return session in self._sessions or self._flag in process.cmdline()
        return False

    def wait_until_gone(self, seconds: float) -> list[psutil.Process]:
        """What is left after at most that time."""
        deadline = time.monotonic() + seconds
        while (left := self.living()) and time.monotonic() < deadline:
            time.sleep(0.1)  # to wait would take exit codes away from who started them
        return left

    def listening(self) -> list[int]:
        """The run's ports on which somebody listens."""
        connections = psutil.net_connections(kind="tcp")
        open_ports = {c.laddr.port for c in connections if c.status == "LISTEN"}
        return sorted(self.ports & open_ports)

    def kill(self) -> None:
        """SIGKILL at all of it, the launcher first: it would start tasks again."""
        for process in [self._launcher, *self.living()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def temporary_files(run_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    """What a write that was not finished has left in a run's folder."""
    patterns = ("*.tmp", ".*.new", ".*.old", ".summary.json.*")
    for pattern in patterns:
        yield from run_dir.rglob(pattern)
