"""Groups of environments that do not wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial

from distrl.agents.unroll_streams import Advance, UnrollStreams
from distrl.core.closable_queue import ClosableQueue, QueueClosed
from distrl.core.dynamic_batcher import BatcherClosed
from distrl.core.threads import StoppableThread
from distrl.learners.thread_ends import join_all

_WAITING = 2  # steps of each group that wait to be taken


class GroupThreads:
    """Streams, each stepped in a thread of its own, as far as what they gave is taken.

        advance = threads.step()             # of whichever group is there first
        for advance in threads.finish(): ... # at the end
        threads.close()

    They share a policy that many threads may call. The threads start with the first
    `step`; what ends one is raised by `step` and `finish`.
    """

    def __init__(self, streams: Sequence[UnrollStreams], timeout_secs: float):
        """`timeout_secs` bounds the wait for a step, and that for their ends."""
        self._streams, self._timeout = streams, timeout_secs
        self._advances: ClosableQueue[Advance | None] = ClosableQueue(
            _WAITING * len(streams)
        )
        self._threads = [
            StoppableThread(f"group {index}", partial(self._run, each), self._ended)
            for index, each in enumerate(streams)
        ]
        self._started = False

    @property
    def pending_env_steps(self) -> int:
        """Environment steps whose unrolls have not ended; exact behind `finish`."""
        return sum(streams.pending_env_steps for streams in self._streams)

    def step(self) -> Advance:
        """The next step of any group. Raises TimeoutError when none comes."""
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()
        advance = self._advances.get(self._timeout)
        if advance is None:
            raise RuntimeError("step() of GroupThreads behind finish()")
        return advance

    def finish(self) -> Iterator[Advance]:
        """Ends the threads behind the steps that they are in; all that they gave."""
        for thread in self._threads:
            thread.stop()
        running = len(self._threads) if self._started else 0
        while running:
            advance = self._advances.get(self._timeout)
            if advance is None:
                running -= 1
            else:
                yield advance

    def close(self) -> None:
        """Ends the threads; close their policy before, which wakes those in it."""
        for thread in self._threads:
            thread.stop()
        self._advances.close()
        join_all(self._threads if self._started else (), self._timeout)

    # What follows runs in the threads.

    def _run(self, streams: UnrollStreams, stopping: threading.Event) -> None:
        try:
            while not stopping.is_set():
                self._advances.put(streams.step())
            self._advances.put(None)
        except (QueueClosed, BatcherClosed):
            if not stopping.is_set():
                raise

    def _ended(self) -> None:
        errors = [thread.error for thread in self._threads]
        first = next((error for error in errors if error is not None), None)
        if first is not None:
            self._advances.close(first)
