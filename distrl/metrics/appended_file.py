"""A file that grows by whole records, on a disk that may be full, slow or gone."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from distrl.core.threads import StoppableThread

log = logging.getLogger(__name__)

_PATIENCE_SECS = 0.1  # with a disk; who waits longer may be missed by others
_CAPACITY = 64  # records that wait for a slow disk
_CALM_SECS = 60.0  # without a loss, before the next one is a new fault
_CLOSE_SECS = 2.0


class AppendedFile:
    """Appends in a thread of its own, which may be held up by the disk; others are not.

    A record that the disk refuses, or has no time for, is lost, and counted. The log
    says so once, with path and reason, and how many it were when no other has been lost
    for a minute. The file is opened again after each fault, so it grows on as soon as
    the disk works, and never behind a part of a record. One thread appends.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        head: bytes = b"",
        make_folder: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Touches nothing on disk yet. `head` begins a file that is empty."""
        self.path, self._head, self._make_folder = path, head, make_folder
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()  # the first one is being written
        self._dropped = 0  # there was no room for them
        self._lost, self._calm = 0, 0.0  # in the fault that lasts, and until when
        self._file: int | None = None
        self._whole: int | None = None  # where a part of a record begins, in bytes
        self._closed = False
        self._thread: StoppableThread | None = None

    def append(self, record: bytes) -> None:
        """The record is in the file on return, unless the disk refuses it, or takes
        more than 0.1 s. Does nothing after `close()`."""
        if self._closed:
            return
        if self._thread is None:
            self._thread = StoppableThread(f"write {self.path}", self._run).start()
        self._thread.check()
        with self._changed:
            if len(self._waiting) >= _CAPACITY:
                self._dropped += 1  # no word in the log, which is on that disk, too
                return
            behind = bool(self._waiting)
            self._waiting.append(record)
            self._changed.notify_all()
            if not behind:
                self._changed.wait_for(lambda: not self._waiting, _PATIENCE_SECS)

    def close(self, timeout: float = _CLOSE_SECS) -> None:
        """Writes what waits; what has not been written after `timeout` s is lost. May
        be called again."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.stop()
        with self._changed:
            self._changed.notify_all()
        try:
            thread.join(timeout)
        except TimeoutError:
            log.error("cannot write %s: the disk does not answer", self.path)

    # The thread.

    def _run(self, stopping: threading.Event) -> None:
        while (record := self._next(stopping)) is not None:
            try:
                self._put(record)
                lost, why = 0, ""
            except OSError as error:
                self._close_file()
                lost, why = 1, str(error)
            with self._changed:
                dropped, self._dropped = self._dropped, 0
            self._note(lost + dropped, why or "the disk is too slow")
            with self._changed:
                self._waiting.popleft()
                self._changed.notify_all()
        self._close_file()
        if self._lost:
            self._sum_up()

    def _next(self, stopping: threading.Event) -> bytes | None:
        """Waits for a record; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or stopping.is_set())
            return self._waiting[0] if self._waiting else None

    def _put(self, record: bytes) -> None:
        """Appends the whole record. Raises OSError."""
        if self._file is None:
            if self._make_folder:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o644)
        size = os.fstat(self._file).st_size
        if self._whole is not None and size > self._whole:
            os.ftruncate(self._file, self._whole)
            size = self._whole
        self._whole = size
        rest = record if size else self._head + record
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._whole = None

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)

    def _note(self, lost: int, why: str) -> None:
        now = self._clock()
        if lost:
            if not self._lost:
                log.error("records are lost, cannot write %s: %s", self.path, why)
            self._lost += lost
            self._calm = now + _CALM_SECS
        elif self._lost and now >= self._calm:
            self._sum_up()

    def _sum_up(self) -> None:
        log.warning("%s has lost %d records to a fault", self.path, self._lost)
        self._lost = 0
