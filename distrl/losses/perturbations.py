"""The perturbations of a run by their names, the same in every task."""

from __future__ import annotations

import numpy as np

from distrl.core.errors import ConfigError
from distrl.losses.evolution import noise_rows, noise_table, seeded_noise_rows

_MOST_SEEDS = 1 << 62


class Perturbations:
    """Standard normal vectors that a number names: an offset into a table, or a seed.

    names = perturbations.draw(np.random.default_rng(7), 10)
    noise = perturbations.rows(names)       # in whichever task
    """

    def __init__(self, seed: int, table_size: int | None, vector_size: int):
        """`seed` makes the table of `table_size` numbers (4 bytes each); None is to
        make each vector from a seed of its own, at about 5 ns a number.

        Raises ConfigError, with both numbers, for a table that is too small.
        """
        self._size = vector_size
        if table_size is not None and table_size < vector_size:
            raise ConfigError(
                f"a noise table of {table_size} numbers is too small for a network "
                f"of {vector_size} parameters"
            )
        self._table = None if table_size is None else noise_table(seed, table_size)

    def draw(self, random: np.random.Generator, number: int) -> np.ndarray:
        """Names of so many vectors, int64 `[number]`."""
        table = self._table
        end = _MOST_SEEDS if table is None else len(table) - self._size + 1
        return random.integers(0, end, number)

    def rows(self, names: np.ndarray) -> np.ndarray:
        """float32 `[len(names), vector size]`. Raises ValueError for other names."""
        if self._table is None:
            return seeded_noise_rows(names.tolist(), self._size)
        return noise_rows(self._table, names.tolist(), self._size)
