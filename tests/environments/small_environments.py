"""Small environments for tests of all back-ends: picklable by reference, no TensorFlow.

To treat one slot alone, in any process: `environment.set_attr("at", [None, 3])`, seeds
(`only_seed`), or `InTurn`, which gives the k-th call its own factory.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from nested_environment import NestedEnv as NestedEnv  # to be had from here

STEPS = 10_000  # above any count


class CountEnv(gymnasium.Env):
    """Shows the steps of the episode, pays the action, ends at `max_count`."""

    metadata = {"render_modes": ["rgb_array", "human"]}

    def __init__(
        self,
        max_count: int = 3,
        truncate: bool = False,
        render_mode: str | None = None,
    ):
        self.observation_space = spaces.Discrete(STEPS)
        self.action_space = spaces.Discrete(STEPS)
        self.max_count, self.truncate, self.render_mode = (
            max_count,
            truncate,
            render_mode,
        )
        self.count = 0
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self.count, {}

    def step(self, action: int) -> Any:
        self.count += 1
        ended = self.count == self.max_count
        flags = (False, ended) if self.truncate else (ended, False)
        return self.count, float(action), *flags, {}

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self.count, np.uint8)

    def add(self, number: int, twice: bool = False) -> int:
        """The count and a number; the environment stays as it is."""
        return self.count + number * (2 if twice else 1)

    def close(self) -> None:
        self.closed += 1


class SeededEnv(CountEnv):
    """A CountEnv that shows random numbers of its own stream, float32 [2]."""

    def __init__(self, max_count: int = 5, truncate: bool = False):
        super().__init__(max_count, truncate)
        self.observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.first_seed: int | None = None  # of the last reset that had one

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.first_seed = self.first_seed if seed is None else seed
        return self._show(), {}

    def step(self, action: int) -> Any:
        return self._show(), *super().step(action)[1:]

    def _show(self) -> np.ndarray:
        return self.np_random.random(2, np.float32)


class SimpleEnv(gymnasium.Env):
    """Adds the actions up in its start observation, for `seed + 1` steps an episode.

    A reset does not undo the sum: the same array is shown, and used, all the time.
    """

    def __init__(self, seed: int, shape: tuple[int, ...] = (3, 8), dtype: Any = "u1"):
        start = np.random.RandomState(seed).randint(0, 256, shape)
        self.observation_space = spaces.Box(0, 255, shape, np.dtype(dtype))
        self.action_space = spaces.Box(0, 100, shape, np.dtype(dtype))
        self._sum = start.astype(dtype)
        self._length, self._taken = seed + 1, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._taken = 0
        return self._sum, {}

    def step(self, action: np.ndarray) -> Any:
        self._sum += action
        self._taken += 1
        reward = self._taken / self._length
        info = {"foo": f"bar{reward}"}
        return self._sum, reward, self._taken >= self._length, False, info


#: Raised (a class with the text "planned"), or called (and passed by).
Fault = BaseException | Callable[[], Any]


class FailingEnv(CountEnv):
    """Does `fault` in its `at`-th step, reset or close (from 1; None: never), or in
    the constructor.

    `at` can be set from outside; calls are counted since the environment was made.
    With `only_seed` it happens only behind a reset with that seed; with `once`, a path,
    only if that file does not exist, which is then made: once in all processes.
    """

    def __init__(
        self,
        where: str = "step",
        at: int | None = 3,
        fault: Fault = RuntimeError,
        max_count: int = STEPS - 1,
        only_seed: int | None = None,
        once: str | os.PathLike | None = None,
    ):
        if where not in ("constructor", "reset", "step", "close"):
            raise ValueError(f"unknown place: {where!r}")
        super().__init__(max_count)
        self.where, self.at, self.fault = where, at, fault
        self.calls = 0  # of what fails
        self._only_seed, self._once, self._seed = only_seed, once, None
        if where == "constructor":
            self.at = 1
            self._count_call("constructor")

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self._seed = self._seed if seed is None else seed
        self._count_call("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> Any:
        self._count_call("step")
        return super().step(action)

    def close(self) -> None:
        if self.where == "close":
            self.at = 1 if self.at is not None else None
        self._count_call("close")
        super().close()

    def _count_call(self, place: str) -> None:
        if place != self.where:
            return
        self.calls += 1
        if self.calls != self.at or self._only_seed not in (None, self._seed):
            return
        if self._once is not None and not _made(Path(self._once)):
            return
        if isinstance(self.fault, type):
            raise self.fault("planned")
        if isinstance(self.fault, BaseException):
            raise self.fault
        self.fault()


def _made(path: Path) -> bool:
    """Makes a file; False if it was there. One process alone gets True."""
    try:
        path.open("x").close()
    except FileExistsError:
        return False
    return True


class InTurn:
    """A factory that hands the k-th call over to the k-th factory, in a circle.

    Counts with files in `folder`, so that the calls may come from many processes.
    """

    def __init__(self, folder: str | os.PathLike, *factories: Callable[[], Any]):
        self._folder, self._factories = os.fspath(folder), factories

    def __call__(self) -> Any:
        turn = 0
        while not _made(Path(self._folder, f"turn{turn}")):
            turn += 1
        return self._factories[turn % len(self._factories)]()


# What a FailingEnv may do.


def exit_process() -> None:
    os._exit(7)


def kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    raise SystemExit(5)


def hang(secs: float = 600.0) -> None:
    """Blocks; with functools.partial for a shorter time."""
    threading.Event().wait(secs)


class Unpicklable(Exception):
    """An error that does not travel: its constructor wants two arguments."""

    def __init__(self, what: str, number: int):
        super().__init__(f"{what} {number}")
        self.lock = threading.Lock()
