"""The tasks of `distrl.benchmark.environments`, and what steps them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from distrl.benchmark.dummy_environment import DummyEnvironment
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.parallel_environment import ParallelEnvironment
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)

SHARED, ASYNC = "SharedMemoryVectorEnvironment", "AsyncVectorEnv"
SEED = 0
START_METHOD = "forkserver"  # of all: this program has threads once envpool has run


# The tasks.


class Task(NamedTuple):
    name: str
    factory: Callable[[], gymnasium.Env]
    goal: float  # of SHARED's speed over ASYNC's
    envpool: dict[str, Any] = {}  # arguments of its own task, if it has one


def cartpole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def pong() -> gymnasium.Env:
    from distrl.environments.atari import atari_environment  # imports ALE

    return atari_environment()


TASKS = {
    task.name: task
    for task in (
        Task("cartpole", cartpole, 1.0, {"task_id": "CartPole-v1"}),
        Task(
            *("pong", pong, 1.0),
            {"task_id": "Pong-v5", "episodic_life": True, "reward_clip": True},
        ),
        Task("dummy", DummyEnvironment, 1.3),
    )
}


# Starting the back-ends: environments that were reset.


def serial(task: Task, num_envs: int) -> Any:
    return _reset(SerialVectorEnvironment(task.factory, num_envs, _seeds()))


def parallel(task: Task, num_envs: int) -> Any:
    factories = [task.factory] * num_envs
    return _reset(ParallelEnvironment(factories, _seeds(), start_method=START_METHOD))


def shared_memory(task: Task, num_envs: int, **settings: Any) -> Any:
    return _reset(
        SharedMemoryVectorEnvironment(
            *(task.factory, num_envs, _seeds()), start_method=START_METHOD, **settings
        )
    )


def gymnasium_sync(task: Task, num_envs: int) -> Any:
    return _reset(SyncVectorEnv([task.factory] * num_envs), seed=SEED)


def gymnasium_async(task: Task, num_envs: int) -> Any:
    factories = [task.factory] * num_envs
    made = AsyncVectorEnv(factories, shared_memory=True, context=START_METHOD)
    return _reset(made, seed=SEED)


def stable_baselines(task: Task, num_envs: int) -> Any:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    made = SubprocVecEnv([task.factory] * num_envs, start_method=START_METHOD)
    made.seed(SEED)
    return _reset(made)


def envpool(task: Task, num_envs: int) -> Any:
    import envpool

    return _reset(
        envpool.make(env_type="gymnasium", num_envs=num_envs, seed=SEED, **task.envpool)
    )


def _seeds() -> EnvironmentSeeds:
    return EnvironmentSeeds(SEED, "actor", 0)


def _reset(environment: Any, **kwargs: Any) -> Any:
    try:
        environment.reset(**kwargs)
    except BaseException:
        environment.close()
        raise
    return environment


class BackEnd(NamedTuple):
    name: str
    start: Callable[[Task, int], Any]
    package: str = ""  # that is needed and may be missing
    end: dict[str, Any] = {}  # arguments of the environment's `close`
    fits: Callable[[Task], bool] = lambda task: True

    @property
    def is_installed(self) -> bool:
        return not self.package or importlib.util.find_spec(self.package) is not None


BACK_ENDS = (
    BackEnd("SerialVectorEnvironment", serial),
    BackEnd("ParallelEnvironment", parallel),
    BackEnd(SHARED, shared_memory),
    BackEnd(f"{SHARED}, no copy", partial(shared_memory, copy=False)),
    BackEnd(
        f"{SHARED}, 1 a process", partial(shared_memory, environments_per_process=1)
    ),
    BackEnd(
        f"{SHARED}, 1 a process, no copy",
        partial(shared_memory, environments_per_process=1, copy=False),
    ),
    BackEnd("SyncVectorEnv", gymnasium_sync),
    # Terminated, for it asks processes that Ctrl-C has ended, and fails.
    BackEnd(ASYNC, gymnasium_async, end={"terminate": True}),
    BackEnd("SubprocVecEnv", stable_baselines, "stable_baselines3"),
    BackEnd("envpool", envpool, "envpool", fits=lambda task: bool(task.envpool)),
)
