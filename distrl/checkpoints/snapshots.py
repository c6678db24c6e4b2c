"""Snapshots of a memory: saved in the background, found again after a crash."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from absl import logging

from distrl.checkpoints.checkpoint_store import Arrays, CheckpointStore
from distrl.core.threads import Deadline, StoppableThread

Take = Callable[[], Arrays]
Restore = Callable[[Arrays], object]

_ROOM_SHARE = 0.8  # of the memory that is available; a copy may take no more
_RETRY_SECS = 60.0  # before a copy is tried again for which there was no memory
_GIVING_UP_SECS = 2.0  # for the block that is being written, and for cleaning up


class SnapshotWriter:
    """Saves copies of a state in a background thread, below a share of the time.

        writer = SnapshotWriter(store, available_bytes=available_bytes)
        writer.offer(checkpoint_id, memory.state, {"rows": 7}, memory.num_bytes)
        writer.written  # the newest id that is whole on disk
        ...
        writer.finish(last_id, memory.state, {"rows": 9}, timeout=30.0)
        writer.close()

    What the disk refuses (OSError) is logged and counted, and the run goes on. Any
    other error in the background is raised by the next call. Used by one thread.
    """

    def __init__(
        self,
        store: CheckpointStore,
        max_share: float = 0.1,
        pause_ratio: float = 1.0,
        available_bytes: Callable[[], float] = lambda: math.inf,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`max_share` in (0, 1] bounds the share of the time in which a snapshot is
        copied or written. For each second of writing the thread pauses for
        `pause_ratio` s, a block at a time. `available_bytes` says how much main memory
        a copy could have. `clock` counts seconds and must not jump. Raises ValueError.
        """
        if not 0 < max_share <= 1 or not 0 <= pause_ratio < math.inf:
            raise ValueError(f"impossible {max_share=} or {pause_ratio=}")
        self.written: int | None = None  # newest id this writer has on disk, whole
        self.failed = 0  # snapshots that could not be copied or written
        self.protected: Collection[int] = ()  # ids that the store must not delete
        self._store, self._max_share, self._pause_ratio = store, max_share, pause_ratio
        self._available_bytes, self._clock = available_bytes, clock
        self._thread: StoppableThread | None = None
        self._ended, self._given_up = threading.Event(), threading.Event()
        self._not_before = -math.inf

    @property
    def busy(self) -> bool:
        """Whether a snapshot is being written."""
        return self._thread is not None and self._thread.alive

    def offer(
        self,
        checkpoint_id: int,
        take: Take,
        counters: Mapping[str, Any],
        num_bytes: int = 0,
    ) -> bool:
        """Copies by `take()` and begins to write, if it is time; whether it did.

        Not while another one is written, before `max_share` allows it again, and when
        `num_bytes`, the size of the copy, exceeds 80 % of the available memory. The
        arrays that `take` returns are the writer's. Higher ids on disk are deleted once
        this one is whole: they are of a run that has gone back.
        """
        self._check()
        if self.busy or self._clock() < self._not_before:
            return False
        return self._begin(checkpoint_id, take, counters, num_bytes)

    def finish(
        self,
        checkpoint_id: int,
        take: Take,
        counters: Mapping[str, Any],
        timeout: float,
        num_bytes: int = 0,
    ) -> bool:
        """Writes the last snapshot, throttled by nothing; whether it is whole on disk.

        Waits for one under way and then for this one, `timeout` s for both; one that
        takes longer is given up. The thread has ended then.
        """
        deadline = Deadline(timeout)
        if not self._end(deadline):
            return False
        begun = self._begin(checkpoint_id, take, counters, num_bytes)
        self._end(deadline)
        return begun and self.written == checkpoint_id

    def close(self, timeout: float = 5.0) -> None:
        """Ends the thread; gives up what is not whole on disk after `timeout` s."""
        self._end(Deadline(timeout))

    def _begin(
        self, checkpoint_id: int, take: Take, counters: Mapping[str, Any], size: int
    ) -> bool:
        begin, room = self._clock(), _ROOM_SHARE * self._available_bytes()
        try:
            if size > room:
                raise MemoryError(f"{size} bytes, there is room for {room:.0f}")
            arrays = take()
        except MemoryError as error:
            self._fail(checkpoint_id, f"no memory for a copy: {error}")
            self._not_before = begin + _RETRY_SECS
            return False

        def write(stopping: threading.Event) -> None:
            try:
                self._write(checkpoint_id, arrays, counters, stopping)
            finally:
                arrays.clear()  # the thread's end would keep them
                end = self._clock()
                self._not_before = begin + (end - begin) / self._max_share

        self._ended.clear()
        self._given_up.clear()
        name = f"snapshot {checkpoint_id}"
        self._thread = StoppableThread(name, write, self._ended.set).start()
        return True

    def _write(
        self,
        number: int,
        arrays: Arrays,
        counters: Mapping[str, Any],
        stopping: threading.Event,
    ) -> None:
        def pause(seconds: float) -> None:
            stopping.wait(seconds * self._pause_ratio)
            if self._given_up.is_set():
                raise _GivenUp

        try:
            self._store.save(number, arrays, counters, self.protected, pause)
            self.written = number
            self._store.drop_above(number)
        except _GivenUp:
            self._fail(number, "given up: it took too long")
        except OSError as error:
            self._fail(number, str(error))

    def _fail(self, checkpoint_id: int, why: str) -> None:
        self.failed += 1
        path = self._store.path(checkpoint_id)
        logging.error("snapshot %d not saved in %s: %s", checkpoint_id, path, why)

    def _end(self, deadline: Deadline) -> bool:
        """Waits for the thread, without pauses now, and gives it up when time is over;
        whether it ended by itself. Raises what ended it."""
        if self._thread is None:
            return True
        self._thread.stop()
        in_time = self._ended.wait(deadline.remaining)
        if not in_time:
            self._given_up.set()
            if not self._ended.wait(_GIVING_UP_SECS):
                logging.error("the disk does not answer: %s", self._store)
        self._check()
        return in_time

    def _check(self) -> None:
        """Raises, once, what ended the thread."""
        thread = self._thread
        if thread is not None and not thread.alive:
            self._thread = None
            thread.join(_GIVING_UP_SECS)


class _GivenUp(Exception):
    """The snapshot under way is not wanted any more."""


def load_newest(store: CheckpointStore, restore: Restore) -> dict[str, Any] | None:
    """Restores the newest snapshot that can be; its counters, or None without any.

    One that is damaged or foreign, or that `restore` refuses by a ValueError (and it
    must have changed nothing then), is logged with path and reason, and the next older
    one is tried.
    """
    try:
        numbers = store.numbers()
    except OSError as error:
        logging.error("cannot look for snapshots: %s", error)
        return None
    for number in numbers:
        counters = load_number(store, number, restore)
        if counters is not None:
            return counters
    return None


def load_number(
    store: CheckpointStore, number: int, restore: Restore
) -> dict[str, Any] | None:
    """Restores the snapshot of this number; its counters, or None if it cannot be.

    The log then has path and reason.
    """
    path = store.path(number)
    try:
        arrays, counters = store.load(path)
        restore(arrays)
    except (ValueError, MemoryError) as error:
        logging.error("cannot use the snapshot %s: %r", path, error)
        return None
    logging.info("restored the snapshot %s", path)
    return counters
