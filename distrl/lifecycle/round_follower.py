"""The thread that follows the rounds: plans, and the parameters that they name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from distrl.cluster.parameter_store import ParameterStore
from distrl.core.errors import PeerUnreachable
from distrl.core.threads import Deadline, StoppableThread
from distrl.lifecycle.round_board import RoundReader, Token
from distrl.lifecycle.round_plan import RoundPlan

_TOKEN_SECS = 0.5  # a lost token costs no more than this


class Round(NamedTuple):
    """A plan and, for an actor, exactly the parameters of its version."""

    plan: RoundPlan
    parameters: np.ndarray | None


class RoundFollower:
    """Keeps the newest round at hand; rounds that were missed are over anyway.

    A round whose parameters have been replaced is over too. `store` None is for a
    memory, which needs none. Silence of ps 0 for `error_after_secs` ends the thread,
    and `take` raises.
    """

    def __init__(
        self,
        reader: RoundReader,
        store: ParameterStore | None,
        error_after_secs: float,
        notify: Callable[[], None] = lambda: None,
    ):
        self._reader, self._store = reader, store
        self._patience, self._notify = error_after_secs, notify
        self._seen = -1
        self._lock = threading.Lock()
        self._box: Round | None = None
        self._thread = StoppableThread("follow rounds", self._run, notify).start()

    def _run(self, stopping: threading.Event) -> None:
        silence = Deadline(self._patience)
        token: Token | None = None
        while not stopping.is_set():
            try:
                if token is None:
                    self._look(self._reader.read(), None)
                else:
                    self._look(*token)
                token = self._reader.wait(_TOKEN_SECS, stopping)
                silence = Deadline(self._patience)
            except PeerUnreachable:
                if silence.passed:
                    raise
                stopping.wait(_TOKEN_SECS)

    def _look(self, plan: RoundPlan | None, part: np.ndarray | None) -> None:
        """Takes in a plan, if it is new; `part` is what came with it."""
        if plan is None or plan.round <= self._seen:
            return
        parameters = None
        if self._store is not None and not plan.last:
            found = self._store.read(part)
            if found is None or found[0] != plan.version:
                return  # a new plan is on its way
            parameters = found[1]
        self._seen = plan.round
        with self._lock:
            self._box = Round(plan, parameters)
        self._notify()

    @property
    def waiting(self) -> bool:
        """Whether there is a round to take."""
        return self._box is not None

    def take(self) -> Round | None:
        """The newest round that was not taken yet. Raises what ended the thread."""
        with self._lock:
            box, self._box = self._box, None
        if box is None:
            self._thread.check()
        return box

    def cancel(self) -> None:
        """Asks the thread to end; does not wait."""
        self._thread.stop()

    def stop(self, timeout: float) -> None:
        """Ends the thread. Raises what has ended it before."""
        self._thread.stop()
        try:
            self._thread.join(timeout)
        finally:
            self._reader.close()
            if self._store is not None:
                self._store.close()
