"""What becomes of learner steps whose results are not finite."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from distrl.agents.settings import Learning
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.parameters import ParameterSpec
from distrl.core.errors import Diverged
from distrl.core.specs import Nest, named_leaves
from distrl.lifecycle.task import Task

log = logging.getLogger(__name__)

DIVERGED = "diverged"


class Trained(Protocol):
    """What is guarded."""

    learner_steps: int
    parameter_specs: list[ParameterSpec]

    def parameters(self) -> list[np.ndarray]: ...

    def state(self) -> dict[str, np.ndarray]: ...

    def restore(self, state: Mapping[str, np.ndarray], learner_steps: int) -> None: ...


class FinitenessGuard:
    """Sees to it that NaN and infinities are neither published nor saved.

    With `Learning.if_not_finite` "stop" it saves the batch at fault, as checkpoint
    "diverged", and raises Diverged. With "skip" the session goes back to the state of
    the last look at its parameters, and the step is counted as `skipped_updates`.
    """

    def __init__(
        self, task: Task, session: Trained, learning: Learning, store: CheckpointStore
    ):
        self._task, self._session, self._store = task, session, store
        self._skips = learning.if_not_finite == "skip"
        self._good: dict[str, np.ndarray] | None = None
        self._batch: Nest = ()

    def check(self, values: Sequence[float] | np.ndarray, batch: Nest) -> bool:
        """Whether the results of a learner step on `batch` are finite."""
        self._batch = batch
        if np.isfinite(values).all():
            return True
        self._undo("the results of a learner step")
        return False

    def finite_parameters(self) -> list[np.ndarray]:
        """Those of the session; those it has gone back to when they are not finite."""
        parameters = self._session.parameters()
        if bad := self._first_bad(parameters):
            self._undo(f"parameter {bad}")
            return self._session.parameters()
        if self._skips:
            self._good = self._session.state()
        return parameters

    def _first_bad(self, parameters: Sequence[np.ndarray]) -> str:
        for spec, array in zip(self._session.parameter_specs, parameters, strict=True):
            if not np.isfinite(array).all():
                return spec.name
        return ""

    def _undo(self, what: str) -> None:
        step = self._session.learner_steps
        fault = f"not finite at learner step {step}: {what}"
        if self._skips and self._good is not None:
            log.warning("%s; going back to what was published", fault)
            self._session.restore(self._good, step)
            self._task.counters.add("skipped_updates")
            return
        raise Diverged(f"{fault}: learning has diverged; {self._save_batch(step)}")

    def _save_batch(self, step: int) -> str:
        arrays = {
            name or "batch": np.asarray(leaf)
            for name, leaf in named_leaves(self._batch)
        }
        try:
            path = self._store.save_named(DIVERGED, arrays, {"learner_steps": step})
        except OSError as error:
            return f"the batch could not be saved: {error}"
        return f"the batch is in {path}"
