"""Environments that bring their own vectorised implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from distrl.core.errors import ConfigError
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.gymnasium_environments import registered
from distrl.environments.gymnasium_vector_environment import (
    GymnasiumVectorEnvironment,
    joint_seed,
)


class NativeVectorEnvironment(GymnasiumVectorEnvironment):
    """N environments in one array program: far faster, where there is one.

    All slots share one random stream, seeded from all seeds together. Time limits are
    the implementation's own business: Gymnasium hands it the registered
    `max_episode_steps`.
    """

    def __init__(
        self,
        id: str,
        num_envs: int,
        seeds: EnvironmentSeeds | None = None,
        **make_kwargs: Any,
    ):
        """Makes the vector environment that `id` is registered with.

        Raises ConfigError when `id` is unknown, has no vector implementation, or one
        with another autoreset mode than NEXT_STEP.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        super().__init__(_make_native(id, num_envs, make_kwargs), seeds)

    def _seed(self, seeds: Sequence[int | None]) -> int:
        return joint_seed(seeds)


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
