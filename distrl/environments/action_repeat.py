"""Each action done several times over."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs


class ActionRepeat(gymnasium.Wrapper, RecordConstructorArgs):
    """One step is up to `num_repeats` steps of the environment, with the same action.

    Rewards are summed; observation, flags and info are those of the last step, which is
    an earlier one where the episode ends. A time limit inside counts the environment's
    own steps, one outside the repeated ones.
    """

    def __init__(self, env: gymnasium.Env, num_repeats: int):
        """Raises ValueError for less than one."""
        if num_repeats < 1:
            raise ValueError(f"num_repeats must be at least 1, got {num_repeats}")
        RecordConstructorArgs.__init__(self, num_repeats=num_repeats)
        super().__init__(env)
        self._num_repeats = num_repeats

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._num_repeats):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info
