"""Threads that can be stopped and whose errors reach their owner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

_LOOK_SECS = 0.2  # how often a wait for two things looks at the second


class StoppableThread:
    """A named thread around `target(stopping)`, where `stopping` is an Event.

    An exception in `target` is kept; `check()` and `join()` raise it. `on_end` is
    called in the thread once it no longer counts as `alive` and its error can be seen:
    the place to wake who waits for it. The thread is a daemon only so that a program
    can leave with `os._exit` at its own deadline; owners stop and join it.
    """

    def __init__(
        self,
        name: str,
        target: Callable[[threading.Event], None],
        on_end: Callable[[], None] = lambda: None,
    ):
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self._target, self._on_end = target, on_end
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> StoppableThread:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self._target(self.stopping)
        except BaseException as error:  # noqa: BLE001  a thread border
            self.error = error
        self._ended = True
        self._on_end()

    @property
    def alive(self) -> bool:
        """Whether `target` is running."""
        return self._thread.is_alive() and not self._ended

    def check(self) -> None:
        """Raises what ended the thread, if something did."""
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Asks the thread to end; does not wait."""
        self.stopping.set()

    def join(self, timeout: float) -> None:
        """Waits for the end; raises its error, or TimeoutError after `timeout` s."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"thread {self._thread.name} did not end in {timeout} s")
        self.check()


def call_with_deadline(
    function: Callable[[], Any],
    timeout: float,
    what: str,
    stopping: threading.Event | None = None,
) -> Any:
    """`function()`, run in a helper thread that is abandoned after `timeout` s.

    For calls that cannot be interrupted, such as the creation of a session towards a
    stopped process. It is also abandoned, soon, once `stopping` is set. Raises
    TimeoutError naming `what`, or what `function` raised.
    """
    box: list[Any] = []
    ended = threading.Event()
    helper = StoppableThread(what, lambda _: box.append(function()), ended.set).start()
    deadline = Deadline(timeout)
    while not ended.wait(min(_LOOK_SECS, deadline.remaining)):
        if deadline.passed or (stopping is not None and stopping.is_set()):
            raise TimeoutError(f"{what}: no answer within {timeout:.1f} s")
    helper.check()
    return box[0]


class Deadline:
    """A point in time that several waits share."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Seconds left, 0 when it has passed."""
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.remaining == 0.0
