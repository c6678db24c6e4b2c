"""Vector environments of every kind for tests of wrappers, and a seeded player."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv
from small_environments import CountEnv

from distrl.core.nests import map_nest
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.gymnasium_vector_environment import (
    GymnasiumVectorEnvironment,
)
from distrl.environments.native_vector_environment import NativeVectorEnvironment
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)
from distrl.environments.vector_environment import VectorEnvironment

SEEDS = EnvironmentSeeds(3, "actor", 0)


def serial(factory: Any = CountEnv, num_envs: int = 2) -> VectorEnvironment:
    return SerialVectorEnvironment(factory, num_envs, SEEDS)


def shared(factory: Any = CountEnv, num_envs: int = 2) -> VectorEnvironment:
    return SharedMemoryVectorEnvironment(factory, num_envs, SEEDS)


def double_buffered(factory: Any = CountEnv, num_envs: int = 2) -> VectorEnvironment:
    """Writes its arrays again in the step after the next."""
    return SharedMemoryVectorEnvironment(factory, num_envs, SEEDS, copy=False)


def by_gymnasium(factory: Any = CountEnv, num_envs: int = 2) -> VectorEnvironment:
    return GymnasiumVectorEnvironment(SyncVectorEnv([factory] * num_envs), SEEDS)


def native(num_envs: int = 2) -> VectorEnvironment:
    return NativeVectorEnvironment("CartPole-v1", num_envs, SEEDS)


def steps(environment: VectorEnvironment, num_steps: int) -> list[tuple]:
    """What a seeded player sees and is told: a reset, and steps."""
    seen: list[tuple] = [environment.reset()]
    action_space = copy.deepcopy(environment.action_space)
    action_space.seed(5)
    for _ in range(num_steps):
        rows = [action_space.sample() for _ in range(environment.num_envs)]
        actions = map_nest(
            lambda leaf, *parts: np.stack(parts).astype(leaf.dtype),
            environment.spec.action,
            *rows,
        )
        seen.append(tuple(environment.step(actions)))
    return seen
