"""Replay in which every live transition is as likely as any other."""

from __future__ import annotations

import numpy as np

from distrl.memories.replay_memory import ReplayMemory


class UniformMemory(ReplayMemory):
    """Draws uniformly, with replacement; all weights are 1.

    Priorities are checked and counted as in PrioritizedMemory, and have no effect.
    """

    def _draw(self, num_batches: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        count = num_batches * batch_size
        ids = self._random.integers(self._storage.tail, self._storage.head, count)
        return ids, np.ones(count, np.float32)
