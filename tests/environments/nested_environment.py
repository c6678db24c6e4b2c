"""An environment with every kind of space, for tests of all back-ends."""

from __future__ import annotations

import zlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


def nested_space() -> spaces.Space:
    """Every kind of space and many dtypes, in dicts and tuples."""
    return spaces.Dict(
        {
            "pixels": spaces.Box(0, 255, (4, 3, 2), np.uint8),
            "body": spaces.Tuple(
                [
                    spaces.Box(-1, 1, (), np.float32),
                    spaces.Dict(
                        half=spaces.Box(-1, 1, (2,), np.float16),
                        double=spaces.Box(-np.inf, np.inf, (3,), np.float64),
                        words=spaces.Box(-300, 300, (2,), np.int16),
                        count=spaces.Box(0, 60_000, (1,), np.uint16),
                    ),
                    spaces.Discrete(5, start=-2),
                ]
            ),
            "choices": spaces.MultiDiscrete([3, 4]),
            "bits": spaces.MultiBinary([2, 2]),
            "alone": spaces.Tuple([spaces.Box(-5, 5, (2,), np.int64)]),
        }
    )


def nested_action_space() -> spaces.Space:
    return spaces.Dict(
        {
            "move": spaces.Box(-1, 1, (2,), np.float32),
            "pick": spaces.Tuple([spaces.Discrete(7), spaces.MultiBinary(3)]),
            "dials": spaces.MultiDiscrete([2, 5]),
            "force": spaces.Box(0, 255, (), np.uint8),
        }
    )


class NestedEnv(gymnasium.Env):
    """Random values of all kinds of spaces; the reward is a checksum of the action.

    Both random lengths of episodes and values are of the stream of the first seed.
    Episodes end by truncation or termination in turn. `options={"length": n}` at a
    reset sets the length of the episode. Infos have numbers, arrays, texts and dicts,
    some only at times.
    """

    def __init__(self, max_length: int = 12):
        self.observation_space = nested_space()
        self.action_space = nested_action_space()
        self._max_length = max_length
        self._episodes = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._episodes = 1 if seed is not None else self._episodes + 1
        self._left = int(self.np_random.integers(1, self._max_length + 1))
        self._left = (options or {}).get("length", self._left)
        return draw(self.observation_space, self.np_random), {"left": self._left}

    def step(self, action: Any) -> Any:
        self._left -= 1
        over, truncates = self._left <= 0, self._episodes % 2 == 0
        info: dict[str, Any] = {"left": self._left, "half": self._left / 2}
        if self._left % 3 == 0:
            info["text"] = f"{self._left} left"
            info["more"] = {"row": np.arange(2) + self._left, "even": over}
        observation = draw(self.observation_space, self.np_random)
        flags = over and not truncates, over and truncates
        return observation, checksum(self.action_space, action), *flags, info


def draw(space: spaces.Space, rng: np.random.Generator) -> Any:
    """A random value of a space, from a stream that is not the space's own."""
    if isinstance(space, spaces.Dict):
        return {key: draw(part, rng) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(draw(part, rng) for part in space)
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start + rng.integers(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return (rng.integers(space.nvec) + space.start).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(0, 2, space.shape).astype(space.dtype)
    if np.issubdtype(space.dtype, np.integer):
        values = rng.integers(space.low, space.high, endpoint=True)
        return np.asarray(values, space.dtype)
    return np.asarray(rng.uniform(-1, 1, space.shape), space.dtype)


def checksum(space: spaces.Space, value: Any) -> float:
    """A whole number below 2^20 that depends on every byte of a value of `space`."""
    if isinstance(space, spaces.Dict):
        parts = [checksum(space[key], value[key]) for key in sorted(space.spaces)]
    elif isinstance(space, spaces.Tuple):
        parts = [checksum(*pair) for pair in zip(space, value, strict=True)]
    else:
        parts = [*np.asarray(value, space.dtype).tobytes()]
    return float(zlib.crc32(np.array(parts, np.float64).tobytes()) % 2**20)
