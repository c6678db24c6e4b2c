"""The ends of several threads under one limit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from distrl.core.threads import Deadline, StoppableThread


class Joinable(Protocol):
    """Something with threads of its own."""

    def join(self, timeout: float) -> None:
        """Raises TimeoutError after `timeout` s."""


class QuietThread:
    """A thread whose `join` does not raise what ended it: its owner asks for that."""

    def __init__(self, thread: StoppableThread):
        self._thread = thread

    def join(self, timeout: float) -> None:
        """Waits for the end; raises TimeoutError after `timeout` s."""
        try:
            self._thread.join(timeout)
        except BaseException as error:
            if error is not self._thread.error:
                raise


def join_all(parts: Iterable[Joinable | StoppableThread], timeout: float) -> None:
    """Waits for all ends, `timeout` s together; TimeoutError naming who is late.

    What ended a StoppableThread is not raised.
    """
    deadline = Deadline(timeout)
    late = []
    for part in parts:
        quiet = QuietThread(part) if isinstance(part, StoppableThread) else part
        try:
            quiet.join(deadline.remaining)
        except TimeoutError as error:
            late.append(str(error))
    if late:
        raise TimeoutError("; ".join(late))
