"""The behaviour policy of one actor with real-valued actions: noise on the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.agents.behaviour import Decision
from distrl.checkpoints.parameters import ParameterSpec, unflatten_parameters
from distrl.checkpoints.policy import PolicySession
from distrl.core.specs import ArraySpec, EnvironmentSpec, Nest, leaves
from distrl.networks.bounded_action import BoundedAction


class NoisyModel(Protocol):
    """What is needed of a model with a deterministic policy."""

    def build_acting(
        self, spec: EnvironmentSpec, observation_ph: Nest, noise_ph: tf.Tensor
    ) -> Sequence[tf.Tensor]:
        """Action with noise float32 `[N, E]`, its value `[N]`, that of the best one."""


class ActionNoise:
    """Gaussian noise of N slots, with a standard deviation for each.

        x := ρ · x + √(1 − ρ²) · std · ξ,    ξ standard normal, ρ = `correlation`

    With ρ = 0 nothing is remembered; otherwise it is an Ornstein-Uhlenbeck process with
    θ = 1 − ρ a step (0.15 in Lillicrap et al. 2016), written so that `std` is that of x
    itself, for any ρ. Where an episode began, the process does so too, as what it is in
    the long run.
    """

    def __init__(
        self,
        stds: Sequence[float],
        num_elements: int,
        correlation: float,
        seed: np.random.SeedSequence,
    ):
        """Raises ValueError for a negative std or a correlation outside [0, 1)."""
        if not 0 <= correlation < 1:
            raise ValueError(f"correlation must be in [0, 1), got {correlation}")
        if min(stds) < 0:
            raise ValueError(f"stds must be at least 0, got {min(stds)}")
        self._stds = np.asarray(stds, np.float32)[:, None]
        self._correlation = np.float32(correlation)
        self._random = np.random.default_rng(seed)
        self._x = self._stds * self._normal(len(stds), num_elements)

    def draw(self, slots: slice, began: np.ndarray | None) -> np.ndarray:
        """The next noise of these slots, float32 `[N, E]`."""
        x, rho = self._x[slots], self._correlation
        if began is not None:
            rho = np.where(began, np.float32(0), rho)[:, None]
        fresh = self._stds[slots] * self._normal(*x.shape)
        x[...] = rho * x + np.sqrt(1 - rho * rho) * fresh
        return x.copy()

    def _normal(self, *shape: int) -> np.ndarray:
        return self._random.standard_normal(shape, np.float32)


class NoisyPolicy:
    """μ(s) with noise, under the newest parameters that were loaded."""

    def __init__(
        self,
        model: NoisyModel,
        spec: EnvironmentSpec,
        stds: Sequence[float],
        correlation: float,
        seed: np.random.SeedSequence,
    ):
        """`stds` are in units of half the distance of the action's bounds, one a slot.

        Raises ConfigError for an action that is not bounded, ValueError as ActionNoise.
        """
        self._num_elements = BoundedAction(spec).num_elements
        self._noise = ActionNoise(stds, self._num_elements, correlation, seed)
        self._session = PolicySession(
            lambda observation, noise: model.build_acting(spec, observation, noise),
            {
                "observation": spec.observation,
                "noise": ArraySpec((self._num_elements,), "float32"),
            },
        )
        self.version = -1
        self.exploration = {"noise_stds": list(stds)}

    @property
    def parameter_specs(self) -> list[ParameterSpec]:
        return self._session.parameter_specs

    def load(self, version: int, parameters: np.ndarray) -> None:
        """Takes uint8 parameters as they travel. Raises ValueError when they do not
        fit the acting graph."""
        self._session.load(
            unflatten_parameters(parameters, self._session.parameter_specs)
        )
        self.version = version

    def decide(
        self,
        observation: Nest,
        slots: slice = slice(None),
        began: np.ndarray | None = None,
    ) -> Decision:
        """`observation` is `[N, ...]`, of these slots; noise starts anew at `began`."""
        noise = self._noise.draw(slots, began)
        return Decision(*self._session.run(observation, noise))

    def greedy(self, observation: Nest, began: np.ndarray | None = None) -> np.ndarray:
        """μ of any number of observations."""
        number = len(leaves(observation)[0])
        silence = np.zeros((number, self._num_elements), np.float32)
        return self._session.run(observation, silence)[0]

    def close(self) -> None:
        self._session.close()
