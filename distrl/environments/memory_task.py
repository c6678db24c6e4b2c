"""An environment that only who remembers can solve."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class CueTask(gymnasium.Env):
    """Shows a cue, then `delay` distractions, then asks which cue it was.

    An observation is float32 `[num_cues + 2]` in [0, 1]:

        first          the cue, one-hot       1  0
        `delay` times  uniform noise          0  0
        the question   zeros                  0  1
        behind the end zeros                  0  0

    The action at the question earns 1 when it is the number of the cue, uniform in
    0 … num_cues - 1, and ends the episode; all others earn 0. So an episode has
    `delay + 2` steps, its return is 1 for a success, and who acts by the observation
    alone succeeds in 1 of `num_cues`, whatever the policy.

    Raises ValueError for fewer than 2 cues and a negative delay.
    """

    def __init__(self, num_cues: int = 2, delay: int = 10):
        if num_cues < 2:
            raise ValueError(f"num_cues must be at least 2, got {num_cues}")
        if delay < 0:
            raise ValueError(f"delay must be at least 0, got {delay}")
        self.observation_space = spaces.Box(0.0, 1.0, (num_cues + 2,), np.float32)
        self.action_space = spaces.Discrete(num_cues)
        self._num_cues, self._delay = num_cues, delay
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._cue = int(self.np_random.integers(self._num_cues))
        self._time, self._over = 0, False
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Raises ValueError for an action that is no cue, RuntimeError before the first
        and behind the last step of an episode."""
        if not self.action_space.contains(action):
            raise ValueError(f"expected a cue below {self._num_cues}, got {action!r}")
        if self._over:
            raise RuntimeError("no episode is under way: call reset() first")
        self._over = self._time > self._delay
        reward = float(self._over and action == self._cue)
        self._time += 1
        return self._observation(), reward, self._over, False, {}

    def _observation(self) -> np.ndarray:
        shown = np.zeros(self._num_cues + 2, np.float32)
        if self._time == 0:
            shown[[self._cue, -2]] = 1.0
        elif self._time <= self._delay:
            shown[:-2] = self.np_random.random(self._num_cues, np.float32)
        elif not self._over:
            shown[-1] = 1.0
        return shown
