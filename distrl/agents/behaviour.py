"""How an actor explores: what its behaviour policy decides, and what it is asked."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from distrl.checkpoints.parameters import ParameterSpec
from distrl.core.specs import Nest


class Decision(NamedTuple):
    """What was decided for N slots."""

    action: Any  # [N, ...], what the environment takes
    value_taken: Any  # float32 [N], of the action
    value_max: Any  # float32 [N], of the best action


class Behaviour(Protocol):
    """Actions under the newest parameters that were loaded.

    behaviour.load(version, parameters)
    decision = behaviour.decide(observation, slots, began)
    """

    version: int  # of the parameters, -1 before the first
    exploration: dict[str, list[float]]  # what its setting is called: one each slot

    @property
    def parameter_specs(self) -> list[ParameterSpec]:
        """Of the parameters that `load` takes."""

    def load(self, version: int, parameters: np.ndarray) -> None:
        """Takes uint8 parameters as they travel. Raises ValueError when they do not
        fit the acting graph."""

    def decide(
        self,
        observation: Nest,
        slots: slice = slice(None),
        began: np.ndarray | None = None,
    ) -> Decision:
        """For observations `[N, ...]` of these slots; `began`, bool `[N]`, is True
        where one is the first of its episode (None: nowhere)."""

    def greedy(self, observation: Nest, began: np.ndarray | None = None) -> Nest:
        """The best actions of any number of observations; `began` as above."""

    def close(self) -> None:
        """Frees what it holds."""
