"""Environments that bring their own vectorised implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from distrl.core.errors import ConfigError
from distrl.core.nests import unflatten_as
from distrl.core.specs import EnvironmentSpec, Nest, leaves, validate
from distrl.environments.gymnasium_environments import registered
from distrl.environments.spaces import leaf_getters, space_spec
from distrl.environments.vector_environment import (
    EpisodeTotals,
    VectorEnvironment,
    VectorStep,
    check_seeds,
)


class NativeVectorEnvironment(VectorEnvironment):
    """N environments in one array program: far faster, where there is one.

    Time limits are the implementation's own business: Gymnasium hands it the registered
    `max_episode_steps`.
    """

    def __init__(
        self,
        id: str,
        num_envs: int,
        seeds: Sequence[int] | None = None,
        **make_kwargs: Any,
    ):
        """Makes the vector environment that `id` is registered with.

        All slots share one random stream, seeded from all `seeds` (one a slot)
        together at the first `reset()`. Raises ConfigError when `id` is unknown, has no
        vector implementation, or one with another autoreset mode than NEXT_STEP.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        check_seeds(seeds, num_envs)
        self.num_envs = num_envs
        self._first_seeds = seeds
        self._environment = _make_native(id, num_envs, make_kwargs)
        self.spec = EnvironmentSpec(
            space_spec(self._environment.single_observation_space),
            space_spec(self._environment.single_action_space),
        )
        self._leaf_specs = leaves(self.spec.observation)
        self._getters = leaf_getters(self.spec.observation)
        self._totals = EpisodeTotals(num_envs)
        self._resetting: np.ndarray | None = None  # bool [N]
        self._closed = False

    def reset(self, seeds: Sequence[int] | None = None) -> Nest:
        if self._closed:
            raise RuntimeError("reset() of an environment that was closed")
        check_seeds(seeds, self.num_envs)
        if seeds is None:
            seeds = self._first_seeds
        self._first_seeds = None
        seed = None if seeds is None else _joint_seed(seeds)
        if seed is not None:
            self._environment.action_space.seed(seed)
        value, _ = self._environment.reset(seed=seed)
        observation = self._copy(value)
        validate(self.spec.observation, observation, 1, "observation")
        self._totals.reset()
        self._resetting = np.zeros(self.num_envs, bool)
        return observation

    def step(self, actions: Nest) -> VectorStep:
        resetting = self._resetting
        if resetting is None:
            raise RuntimeError("step() of an environment that was closed or not reset")
        value, reward, terminated, truncated, _ = self._environment.step(actions)
        terminated, truncated = np.array(terminated), np.array(truncated)
        self._resetting = ended = terminated | truncated
        self._totals.add(np.asarray(reward), resetting)
        return VectorStep(
            self._copy(value),
            np.array(reward, np.float32),
            terminated,
            truncated,
            self._totals.finish(ended) if ended.any() else {},
        )

    def close(self) -> None:
        self._closed, self._resetting = True, None
        self._environment.close()  # Gymnasium's own is idempotent

    def _copy(self, value: Any) -> Nest:
        """Arrays of our own, in C order: the environment may use its own ones again."""
        parts = [
            np.array(get(value), leaf.dtype, order="C")
            for get, leaf in zip(self._getters, self._leaf_specs, strict=True)
        ]
        return unflatten_as(self.spec.observation, parts)


def _make_native(id: str, num_envs: int, make_kwargs: dict[str, Any]) -> VectorEnv:
    """The vector environment of a registered id, or ConfigError."""
    use_other = "use SerialVectorEnvironment"
    registration = registered(id)
    if registration.vector_entry_point is None:
        raise ConfigError(f"{id!r} has no vector implementation: {use_other}")
    environment = gymnasium.make_vec(
        registration, num_envs, vectorization_mode="vector_entry_point", **make_kwargs
    )
    mode = environment.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.NEXT_STEP:
        environment.close()
        raise ConfigError(f"{id!r} resets in mode {mode}, not NEXT_STEP: {use_other}")
    return environment


def _joint_seed(seeds: Sequence[int]) -> int:
    """One 31-bit seed from those of all slots."""
    return int(np.random.SeedSequence(list(seeds)).generate_state(1)[0] >> 1)
