"""Rewards of bounded size; `episode_return` in infos keeps the raw sums."""

from __future__ import annotations

import numpy as np

from distrl.environments.vector_environment import VectorEnvironment, VectorStep
from distrl.environments.vector_wrapper import VectorWrapper


class RewardClip(VectorWrapper):
    """Rewards clipped to `[low, high]`."""

    def __init__(
        self, environment: VectorEnvironment, low: float = -1.0, high: float = 1.0
    ):
        """Raises ValueError unless `low` < `high`."""
        super().__init__(environment)
        if not low < high:
            raise ValueError(f"expected low < high, got {low} and {high}")
        self._low, self._high = np.float32(low), np.float32(high)

    def _next(self, step: VectorStep) -> VectorStep:
        return step._replace(reward=np.clip(step.reward, self._low, self._high))


class RewardSign(VectorWrapper):
    """Rewards replaced by their sign: -1, 0 or 1."""

    def _next(self, step: VectorStep) -> VectorStep:
        return step._replace(reward=np.sign(step.reward))
