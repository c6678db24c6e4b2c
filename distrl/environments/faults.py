"""What environments raise, and which of them is to blame."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterable
from typing import NamedTuple

from distrl.core.remote_errors import ChildFailed
from distrl.environments.spaces import WrongObservation


class EnvironmentFault(Exception):
    """The cause of an error that an environment raised: which one, where, and the
    traceback as text, from whatever process."""


class Fault(NamedTuple):
    """An error of one environment, as it travels between processes."""

    error: BaseException
    slot: int  # of the whole vector environment
    text: str

    @staticmethod
    def of(error: BaseException, slot: int, total: int, place: str) -> Fault:
        """The fault of environment `slot` of `total`, raised in `place`."""
        lines = "".join(traceback.format_exception(error)).rstrip()
        where = f"environment {slot} of {total}"
        if isinstance(error, WrongObservation) and not str(error).startswith(where):
            error = WrongObservation(f"{where}: {error}")
        return Fault(error, slot, f"{where}, in {place}:\n{lines}")

    def portable(self) -> Fault:
        """The same, with an error that survives its way to another process."""
        try:
            pickle.loads(pickle.dumps(self.error))
            return self
        except Exception:  # noqa: BLE001  user's classes may raise anything
            name = type(self.error).__qualname__
            return self._replace(error=ChildFailed(f"{name}: {self.error}"))

    def blame(self, others: Iterable[Fault] = ()) -> BaseException:
        """The error itself, to be raised: its type and message are the environment's;
        `environment_index` and the cause say which one it was, and what `others`
        raised in the same call."""
        error = self.error
        texts = dict.fromkeys([self.text, *(other.text for other in others)])
        error.__cause__ = EnvironmentFault("\n\n".join(texts))
        error.environment_index = self.slot  # type: ignore[attr-defined]
        return error
