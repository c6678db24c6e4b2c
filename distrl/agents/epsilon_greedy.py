"""The behaviour policy of one actor: ε-greedy, with an ε for each environment slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distrl.agents.behaviour import Decision
from distrl.checkpoints.parameters import ParameterSpec, unflatten_parameters
from distrl.checkpoints.policy import LocalPolicy
from distrl.core.specs import Nest
from distrl.networks.action_mask import ILLEGAL
from distrl.networks.discrete import smallest_value


class EpsilonGreedy:
    """Actions under the newest parameters that were loaded."""

    def __init__(
        self,
        policy: LocalPolicy,
        action_spec: Any,
        epsilons: Sequence[float],
        seed: np.random.SeedSequence,
    ):
        self._policy = policy
        self._first_action = smallest_value(action_spec)
        self._dtype = action_spec.dtype
        self._epsilons = np.asarray(epsilons)
        self._random = np.random.default_rng(seed)
        self.version = -1
        self.exploration = {"epsilons": list(epsilons)}

    @property
    def parameter_specs(self) -> list[ParameterSpec]:
        return self._policy.parameter_specs

    def load(self, version: int, parameters: np.ndarray) -> None:
        """Takes uint8 parameters as they travel. Raises ValueError when they do not
        fit the acting graph."""
        self._policy.load(
            unflatten_parameters(parameters, self._policy.parameter_specs)
        )
        self.version = version

    def decide(
        self,
        observation: Nest,
        slots: slice = slice(None),
        began: np.ndarray | None = None,
    ) -> Decision:
        """`observation` is `[N, ...]`, of these slots; `began` makes no difference."""
        values = self._policy.action_values(observation)
        best = values.argmax(axis=1)
        rows = np.arange(best.size)
        explores = self._random.random(best.size) < self._epsilons[slots]
        action = np.where(explores, self._anything(values), best)
        return Decision(
            (action + self._first_action).astype(self._dtype),
            values[rows, action],
            values[rows, best],
        )

    def _anything(self, values: np.ndarray) -> Any:
        """Any legal action of each row, all as likely."""
        legal = values > ILLEGAL
        if legal.all():
            return self._random.integers(values.shape[1], size=len(values))
        return np.where(legal, self._random.random(values.shape), -1.0).argmax(axis=1)

    def greedy(self, observation: Nest, began: np.ndarray | None = None) -> np.ndarray:
        """The best actions of any number of observations."""
        best = self._policy.action_values(observation).argmax(axis=1)
        return (best + self._first_action).astype(self._dtype)

    def close(self) -> None:
        self._policy.close()
