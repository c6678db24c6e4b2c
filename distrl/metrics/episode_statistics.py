"""Returns and lengths of the episodes that ended lately, and totals of all."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable


class EpisodeStatistics:
    """Means over the last `window` episodes; totals since the start.

    With the info of a vector environment's step:

        if info:
            ended = info["_episode_return"]
            statistics.add(info["episode_return"][ended], info["episode_length"][ended])
    """

    def __init__(self, window: int = 100):
        if window < 1:
            raise ValueError(f"window must be at least 1, got {window}")
        self.num_episodes = 0
        self.return_sum = 0.0
        self.length_sum = 0
        self._returns: deque[float] = deque(maxlen=window)
        self._lengths: deque[int] = deque(maxlen=window)

    def add(self, returns: Iterable[float], lengths: Iterable[int]) -> None:
        """Counts episodes. Raises ValueError unless each has a return and a length."""
        for episode_return, length in zip(returns, lengths, strict=True):
            self.num_episodes += 1
            self.return_sum += float(episode_return)
            self.length_sum += int(length)
            self._returns.append(float(episode_return))
            self._lengths.append(int(length))

    @property
    def mean_return(self) -> float:
        """Of the window; NaN before the first episode."""
        return _mean(self._returns)

    @property
    def mean_length(self) -> float:
        """Of the window, in steps; NaN before the first episode."""
        return _mean(self._lengths)


def _mean(values: deque) -> float:
    return math.fsum(values) / len(values) if values else math.nan
