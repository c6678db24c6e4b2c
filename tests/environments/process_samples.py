"""Environments, limits and back-ends for the tests of environments in processes."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from child_objects import wait_until
from gymnasium import spaces
from small_environments import CountEnv

from distrl.core.child_process import ChildLimits
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.parallel_environment import ParallelEnvironment
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)
from distrl.environments.slot_records import SlotSettings
from distrl.environments.vector_environment import VectorEnvironment

LIMITS = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=3.0)
IMPATIENT = ChildLimits(startup_secs=30.0, call_secs=0.7, close_secs=0.3)
SEEDS = EnvironmentSeeds(7, "actor", 3)

Factory = Callable[[], gymnasium.Env]
Maker = Callable[..., VectorEnvironment]  # (factory, num_envs, **kwargs)


def parallel(
    factory: Factory, num_envs: int, *args: Any, **kwargs: Any
) -> ParallelEnvironment:
    return ParallelEnvironment([factory] * num_envs, *args, **kwargs)


def shared(each: int | None, copy: bool = True) -> Maker:
    return functools.partial(
        SharedMemoryVectorEnvironment, environments_per_process=each, copy=copy
    )


#: Every kind of processes.
BACK_ENDS: dict[str, Maker] = {
    "parallel": parallel,
    "parallel, flat": functools.partial(parallel, flatten=True),
    "parallel, blocking": functools.partial(parallel, blocking=True),
    "shared": shared(None),
    "shared, 1 each": shared(1),
    "shared, 3 each": shared(3),
    "shared, no copy": shared(1, copy=False),
}
#: One of each that differs in how it fails: pipes, shared memory, shared processes.
FEW = {name: BACK_ENDS[name] for name in ("parallel", "shared, 1 each", "shared")}


def serial(
    factory: Factory,
    num_envs: int,
    seeds: EnvironmentSeeds | None = None,
    settings: SlotSettings = SlotSettings(),
    limits: ChildLimits = LIMITS,
) -> SerialVectorEnvironment:
    """The reference; there is nothing that limits could be for."""
    return SerialVectorEnvironment(factory, num_envs, seeds, settings)


def pids(environment: Any) -> list[int]:
    """The processes of a vector environment, in the order of the slots."""
    return [worker.child.pid for worker in environment._workers]


def owner(environment: Any, slot: int) -> Any:
    """The child in which a slot lives."""
    (worker,) = (w for w in environment._workers if slot in w.slots)
    return worker.child


def zeros(environment: VectorEnvironment) -> np.ndarray:
    return np.zeros(environment.num_envs, np.int64)


@contextlib.contextmanager
def fails(
    error: type[BaseException], text: str, index: int | None
) -> Iterator[pytest.ExceptionInfo]:
    """Expects an error that names an environment."""
    with pytest.raises(error, match=text) as caught:
        yield caught
    assert getattr(caught.value, "environment_index", None) == index
    said = f"{caught.value} {caught.value.__cause__}"
    assert index is None or f"environment {index}" in said


class Shows(gymnasium.Env):
    """Shows given values, one a step, the last one again and again."""

    def __init__(self, space: spaces.Space, *values: Any):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self._values = values

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return self._values[0], {}

    def step(self, action: Any) -> Any:
        self._step += 1
        value = self._values[min(self._step, len(self._values) - 1)]
        return value, 0.0, False, False, {}


class Reused(gymnasium.Env):
    """Shows the same arrays all the time, and writes over them: counts of steps."""

    def __init__(self) -> None:
        box = spaces.Box(0, 1000, (2,), np.float32)
        self.observation_space = spaces.Dict(a=box, b=spaces.Tuple([box]))
        self.action_space = spaces.Discrete(2)
        self._shown = {"a": np.zeros(2, "f4"), "b": (np.zeros(2, "f4"),)}
        self._count = 0.0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self._count = 0.0
        return self._show(), {}

    def step(self, action: Any) -> Any:
        self._count += 1
        return self._show(), 0.0, False, False, {}

    def _show(self) -> Any:
        self._shown["a"][:] = self._shown["b"][0][:] = self._count
        return self._shown


class Told(CountEnv):
    """Notes in a file that it was closed; owns a process, which it ends then."""

    def __init__(self, folder: str | os.PathLike, owns: bool = False):
        super().__init__()
        self._folder, self.owned = Path(folder), 0
        if owns:
            self._process = subprocess.Popen(["sleep", "120"])
            self.owned = self._process.pid

    def close(self) -> None:
        if self.owned:
            self._process.terminate()
            self._process.wait()
        Path(self._folder, f"closed{os.getpid()}").touch()


class Waits(CountEnv):
    """A step with action 1 returns once a file is there."""

    def __init__(self, path: str | os.PathLike):
        super().__init__(max_count=9999)
        self._path = Path(path)

    def step(self, action: int) -> Any:
        if action == 1:
            wait_until(self._path.exists, 30.0, "the file")
        return super().step(action)


class Meets(CountEnv):
    """Is made once so many of its kind are being made at the same time."""

    def __init__(self, folder: str | os.PathLike, number: int):
        super().__init__()
        Path(folder, f"here{os.getpid()}").touch()
        wait_until(lambda: len(os.listdir(folder)) >= number, 10.0, "the others")


class Alone(CountEnv):
    """Raises FileExistsError while another one of its kind is being made."""

    def __init__(self, folder: str | os.PathLike):
        super().__init__()
        path = Path(folder, "busy")
        path.open("x").close()
        threading.Event().wait(0.1)  # for the other ones to come
        path.unlink()


def count_env() -> CountEnv:
    return CountEnv(9999)


def factories() -> list[Factory]:
    """A function, a lambda, a partial, a class and a bound method."""
    count = 9999
    return [
        count_env,
        lambda: CountEnv(count),
        functools.partial(CountEnv, 9999),
        CountEnv9999,
        Plan(9999).make,
    ]


class CountEnv9999(CountEnv):
    def __init__(self) -> None:
        super().__init__(9999)


class Plan:
    def __init__(self, count: int):
        self._count = count

    def make(self) -> CountEnv:
        return CountEnv(self._count)


def skip_fork(start_method: str) -> None:
    if start_method == "fork" and "tensorflow" in sys.modules:
        pytest.skip("TensorFlow is loaded")
