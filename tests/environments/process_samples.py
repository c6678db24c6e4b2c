"""Environments for the tests of processes: what children import, so nothing heavy."""

from __future__ import annotations

import functools
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from small_environments import CountEnv

Factory = Callable[[], gymnasium.Env]
SETTING = 1  # what a program would set after the import


def wait_for(predicate: Callable[[], object], timeout: float) -> None:
    """Polls, for what other processes do. Raises TimeoutError."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout} s in vain")
        threading.Event().wait(0.005)


class Still(gymnasium.Env):
    """TF-Agents' example: float32 [3, 3], actions float32 [7] in [-1, 1]."""

    observation_space = spaces.Box(-np.inf, np.inf, (3, 3), np.float32)
    action_space = spaces.Box(-1, 1, (7,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return np.zeros((3, 3), np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        return np.full((3, 3), action.sum(), np.float32), 1.0, False, False, {}


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
            wait_for(self._path.exists, 30.0)
        return super().step(action)


class Secretive(CountEnv):
    """A step with action 1 has an info that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__(max_count=9999)

    def step(self, action: int) -> Any:
        result = super().step(action)
        return (*result[:4], {"lock": threading.Lock()}) if action == 1 else result


class Meets(CountEnv):
    """Is made once so many of its kind are being made at the same time."""

    def __init__(self, folder: str | os.PathLike, number: int, secs: float = 10.0):
        super().__init__()
        Path(folder, f"here{os.getpid()}").touch()
        wait_for(lambda: len(os.listdir(folder)) >= number, secs)


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
