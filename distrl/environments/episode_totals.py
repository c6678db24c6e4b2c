"""Returns and lengths of the episodes that run in the slots of a vector environment."""

from __future__ import annotations

import numpy as np


class EpisodeTotals:
    """Return and length of the running episode of each slot."""

    def __init__(self, num_envs: int):
        self.returns = np.zeros(num_envs, np.float64)
        self.lengths = np.zeros(num_envs, np.int64)

    def reset(self, slots: np.ndarray | slice = slice(None)) -> None:
        """The slots of a mask, or all, begin anew."""
        self.returns[slots] = 0.0
        self.lengths[slots] = 0

    def add(self, rewards: np.ndarray, resetting: np.ndarray) -> None:
        """Counts a step of each slot but those of `resetting` (bool [N])."""
        self.returns += rewards
        self.lengths += ~resetting

    def finish(self, ended: np.ndarray) -> dict[str, np.ndarray]:
        """The `info` of a step in which the episodes of `ended` (bool [N]) ended."""
        info = {
            "episode_return": np.where(ended, self.returns, 0.0),
            "episode_length": np.where(ended, self.lengths, 0),
            "_episode_return": ended.copy(),
        }
        self.reset(ended)
        return info
