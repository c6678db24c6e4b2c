"""Threads between published parameters and who writes or reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from distrl.cluster.parameter_store import ParameterStore
from distrl.core.errors import PeerUnreachable
from distrl.core.threads import Deadline, StoppableThread

_RETRY_SECS = 0.2  # between attempts to reach a ps


class ParameterPublisher:
    """A thread that writes the newest parameters it was given.

    `before_write` is called ahead of each write and may raise (fencing). A ps that does
    not answer is tried again; `error_after_secs` without an answer end the thread. An
    error reaches the owner at the next `publish`.
    """

    def __init__(
        self,
        store: ParameterStore,
        before_write: Callable[[], None] = lambda: None,
        error_after_secs: float = 0.0,
    ):
        self._store, self._before_write = store, before_write
        self._patience = error_after_secs
        self._changed = threading.Condition()
        self._newest: tuple[int, np.ndarray] | None = None
        self._thread = StoppableThread(
            "publish parameters", self._run, self._wake
        ).start()

    def publish(self, version: int, parameters: np.ndarray) -> None:
        """Replaces what waits; does not wait for the write."""
        self._thread.check()
        with self._changed:
            self._newest = (version, parameters)
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self, stopping: threading.Event) -> None:
        silence = Deadline(self._patience)
        while (newest := self._next(stopping)) is not None:
            self._before_write()
            try:
                self._store.write(*newest)
                silence = Deadline(self._patience)
            except PeerUnreachable:
                if silence.passed or stopping.is_set():
                    raise
                self._put_back(newest)
                stopping.wait(_RETRY_SECS)

    def _put_back(self, parameters: tuple[int, np.ndarray]) -> None:
        """To be written again, unless there are newer ones."""
        with self._changed:
            self._newest = self._newest or parameters

    def _next(self, stopping: threading.Event) -> tuple[int, np.ndarray] | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._newest is not None or stopping.is_set()
            )
            newest, self._newest = self._newest, None
            return newest

    def stop(self, timeout: float) -> None:
        """Writes what waits, then ends. Raises what ended the thread."""
        self._thread.stop()
        self._wake()
        try:
            self._thread.join(timeout)
        finally:
            self._store.close()


class ParameterPuller:
    """A thread that keeps the newest published parameters at hand.

    It looks every `period_secs`. Versions never go back. A ps that does not answer is
    tried again; `error_after_secs` without an answer end the thread, and `newest`
    raises.
    """

    def __init__(
        self, store: ParameterStore, period_secs: float, error_after_secs: float
    ):
        self._store, self._period = store, period_secs
        self._patience = error_after_secs
        self._version = -1
        self._changed = threading.Condition()
        self._box: tuple[int, np.ndarray] | None = None
        self._thread = StoppableThread("pull parameters", self._run, self._wake).start()

    def _run(self, stopping: threading.Event) -> None:
        silence = Deadline(self._patience)
        while not stopping.is_set():
            try:
                self._pull()
                silence = Deadline(self._patience)
            except PeerUnreachable:
                if silence.passed:
                    raise
            stopping.wait(self._period)

    def _pull(self) -> None:
        if self._store.version() <= self._version:
            return
        found = self._store.read()
        if found is not None and found[0] > self._version:
            with self._changed:
                self._version, self._box = found[0], found
                self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def newest(self) -> tuple[int, np.ndarray] | None:
        """What has come since the last call, or None. Raises what ended the thread."""
        with self._changed:
            box, self._box = self._box, None
        if box is None:
            self._thread.check()
        return box

    def wait(self, timeout: float) -> bool:
        """Waits for something to take, or for an error that `newest` raises."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._box is not None or not self._thread.alive, timeout
            )

    def stop(self, timeout: float) -> None:
        """Ends the thread. Raises what has ended it before."""
        self._thread.stop()
        try:
            self._thread.join(timeout)
        finally:
            self._store.close()
