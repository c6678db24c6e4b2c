"""Running mean and variance of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class RunningMoments:
    """Mean and (population) variance of all rows seen so far, float64 `[*shape]`.

    Two sets of n and m rows with means a and b are joined as Chan et al. 1979 do:

        mean = a + (b - a) m / (n + m)
        squares = squares_a + squares_b + (b - a)² n m / (n + m)

    with the sums of squared deviations, `squares` = variance · number of rows. So any
    partition into batches gives the same as the whole. Before the first row mean is 0
    and variance 1.
    """

    def __init__(self, shape: tuple[int, ...] = ()):
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = 0

    def update(self, rows: np.ndarray) -> None:
        """Takes in `[M, *shape]`. Raises ValueError for other shapes, NaN and inf."""
        rows = np.asarray(rows, np.float64)
        if rows.shape[1:] != self.mean.shape or not rows.ndim:
            raise ValueError(f"expected [M, *{self.mean.shape}], got {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError(f"not finite: {rows[~np.isfinite(rows)][0]}")
        if len(rows):
            self._join(rows.mean(0), rows.var(0), len(rows))

    def merge(self, other: RunningMoments) -> None:
        """Takes in all that `other` has seen. Raises ValueError for another shape."""
        if other.mean.shape != self.mean.shape:
            raise ValueError(
                f"expected moments of {self.mean.shape}, got {other.mean.shape}"
            )
        if other.count:
            self._join(other.mean, other.variance, other.count)

    def _join(self, mean: np.ndarray, variance: np.ndarray, count: int) -> None:
        total = self.count + count
        share = count / total
        apart = mean - self.mean
        self.variance = (
            self.variance * (1 - share)
            + variance * share
            + apart**2 * (1 - share) * share
        )
        self.mean = self.mean + apart * share
        self.count = total

    def normalise(self, rows: np.ndarray, epsilon: float) -> np.ndarray:
        """Float64 `[M, *shape]`: (rows - mean) / sqrt(variance + epsilon)."""
        return (rows - self.mean) / np.sqrt(self.variance + epsilon)

    def state(self) -> dict[str, Any]:
        """Copies of count, mean and variance."""
        mean, variance = self.mean.copy(), self.variance.copy()
        return {"count": self.count, "mean": mean, "variance": variance}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes over a `state()`. Raises ValueError for one of another shape."""
        mean, variance = (
            np.array(state[name], np.float64) for name in ("mean", "variance")
        )
        if mean.shape != self.mean.shape or variance.shape != self.mean.shape:
            raise ValueError(
                f"expected moments of {self.mean.shape}, got {mean.shape} and "
                f"{variance.shape}"
            )
        self.mean, self.variance, self.count = mean, variance, int(state["count"])
