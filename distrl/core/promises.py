"""Promises: the outcomes of calls to child processes, alone and collected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from distrl.core.threads import Deadline


class WaitStopped(RuntimeError):
    """The stop event was set while a reply was awaited."""


@dataclass(frozen=True)
class Outcome:
    """What became of a call: its value, or the error that it raised."""

    value: Any = None
    error: Exception | None = None


class Replier(Protocol):
    """Where replies come from; it settles the promises it was asked for."""

    def wait(self, promise: Promise, timeout: float | None) -> None:
        """Returns once `promise` is settled; raises TimeoutError or WaitStopped."""

    def look(self, seconds: float) -> None:
        """Takes in what has come, waiting at most `seconds` for it."""


class Promise:
    """The outcome of a call, once it is known; it keeps it.

    Promises may be read in any order, more than once, or never.
    """

    __slots__ = ("method", "_replier", "_outcome")

    def __init__(self, method: str, replier: Replier):
        self.method, self._replier = method, replier
        self._outcome: Outcome | None = None

    @property
    def settled(self) -> bool:
        """Whether the outcome is here. Looks at nothing."""
        return self._outcome is not None

    @property
    def done(self) -> bool:
        """Whether `result()` would return or raise at once. Takes in what has come."""
        if self._outcome is None:
            self._replier.look(0.0)
        return self._outcome is not None

    def settle(self, value: Any = None, error: Exception | None = None) -> None:
        """Stores the outcome: the replier's business."""
        self._outcome = Outcome(value, error)

    def result(self, timeout: float | None = None) -> Any:
        """The value; raises the error of the call.

        TimeoutError after `timeout` s (default: the child's `call_secs`), WaitStopped
        when the stop event is set; after either it can be called again.
        """
        outcome = self.outcome(timeout)
        if outcome.error is not None:
            raise outcome.error.with_traceback(None)  # or it would grow at each raise
        return outcome.value

    def outcome(self, timeout: float | None = None) -> Outcome:
        """The same without raising, also of TimeoutError and WaitStopped."""
        if self._outcome is None:
            try:
                self._replier.wait(self, timeout)
            except (TimeoutError, WaitStopped) as error:
                return Outcome(error=error)
        return self._outcome or Outcome()


def collect(promises: Iterable[Promise], timeout: float) -> list[Outcome]:
    """The outcomes of all promises, in order; raises nothing.

    It waits `timeout` s in all. A child that is late, or dead, does not keep the
    outcomes of the others from being collected. They are awaited one after the other:
    the children work on meanwhile, and a reply that is there costs two system calls.
    """
    deadline = Deadline(timeout)
    return [promise.outcome(deadline.remaining) for promise in promises]
