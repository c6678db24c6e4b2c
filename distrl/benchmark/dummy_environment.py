"""An environment whose step is an image at a known price."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

NUM_ACTIONS = 6


class DummyEnvironment(gymnasium.Env):
    """Images of noise, `shape` uint8; a step takes `work_secs` of CPU time.

    The work is a spin until the thread itself has had that much CPU time, not until so
    much wall time has passed: sharing a core with others makes it no cheaper. Episodes
    are truncated behind `episode_length` steps. Raises ValueError for negative work and
    episodes without a step.
    """

    def __init__(
        self,
        work_secs: float = 1e-3,
        shape: tuple[int, ...] = (84, 84, 4),
        episode_length: int = 1000,
    ):
        if not work_secs >= 0:
            raise ValueError(f"work_secs must be at least 0, got {work_secs}")
        if episode_length < 1:
            raise ValueError(f"episode_length must be at least 1, got {episode_length}")
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(NUM_ACTIONS)
        self._work_ns = round(work_secs * 1e9)
        self._episode_length = episode_length

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        shape = self.observation_space.shape or ()
        self._frames = self.np_random.integers(0, 256, (2, *shape), np.uint8)
        self._length = 0
        return self._frames[0].copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """The episode's two images by turns, with reward 1."""
        end = time.thread_time_ns() + self._work_ns
        while time.thread_time_ns() < end:
            pass
        self._length += 1
        truncated = self._length >= self._episode_length
        observation = self._frames[self._length % 2].copy()  # as a renderer makes it
        return observation, 1.0, False, truncated, {}
