"""Rewards in units of the spread of discounted returns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distrl.core.running_moments import RunningMoments

EPSILON = 1e-8  # is added to the variance


class RewardScaling:
    """Divides rewards by the standard deviation of what they sum up to.

        G_t = r_t + discount · G_{t−1},   G := 0 behind the end of an episode
        reward = min(max(r / √(variance of all G so far + EPSILON), −clip), clip)

    No mean is taken off: that would change what is best. Each stream's sum goes on
    where the stream's last rows ended; one that is not in a round starts anew.
    """

    def __init__(self, discount: float, clip: float = 10.0):
        """`clip` is in scaled rewards. Raises ValueError unless it is above 0, and
        for a discount outside [0, 1]."""
        if not clip > 0 or not 0 <= discount <= 1:
            raise ValueError(
                f"expected clip > 0 and a discount in [0, 1], got {clip}, {discount}"
            )
        self._discount, self._clip = discount, clip
        self._moments = RunningMoments()
        self._sums: dict[int, float] = {}  # by stream

    def scale(
        self,
        rewards: np.ndarray,
        ends: np.ndarray,
        mask: np.ndarray,
        stream: np.ndarray,
    ) -> np.ndarray:
        """The scaled rewards, float32 `[T, N]`, 0 where masked; takes them in first.

        `rewards` float, `ends` (of episodes) and `mask` bool, all `[T, N]`; `stream`
        int `[N]` names the columns. Raises ValueError for NaN and inf, and a stream
        that comes twice; then nothing was taken in.
        """
        names = stream.tolist()
        if len(set(names)) != len(names):
            raise ValueError(f"a stream comes twice: {sorted(names)}")
        rewards = np.where(mask, rewards, 0.0).astype(np.float64)
        sums = np.array([self._sums.get(name, 0.0) for name in names])
        returns = np.empty_like(rewards)
        for t in range(len(rewards)):
            returns[t] = sums = rewards[t] + self._discount * sums
            sums = np.where(mask[t] & ~ends[t], sums, 0.0)
        self._moments.update(returns[mask])
        self._sums = dict(zip(names, sums.tolist(), strict=True))
        scaled = rewards / np.sqrt(self._moments.variance + EPSILON)
        return np.clip(scaled, -self._clip, self._clip).astype(np.float32)

    def state(self) -> dict[str, np.ndarray]:
        """All that `restore` takes."""
        moments = {name: np.asarray(x) for name, x in self._moments.state().items()}
        return {
            **moments,
            "stream": np.array(list(self._sums), np.int64),
            "sum": np.array(list(self._sums.values()), np.float64),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over a `state()`."""
        self._moments.load(state)
        streams, sums = state["stream"].tolist(), state["sum"].tolist()
        self._sums = dict(zip(streams, sums, strict=True))
