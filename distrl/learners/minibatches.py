"""The rows of a round in shuffled parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distrl.core.nests import map_nest
from distrl.models.ppo import PPOBatch


class StepMinibatches:
    """Minibatches of single steps, in any order.

    `batch` has time-major leaves `[T, N, ...]`; rows outside its mask are in none.
    """

    def __init__(self, batch: PPOBatch):
        self._rows: PPOBatch = map_nest(_joined, batch)
        self._indices = np.flatnonzero(self._rows.mask)

    def epoch(self, size: int, generator: np.random.Generator) -> Iterator[PPOBatch]:
        """Every step once, in minibatches of at least `size` rows."""
        for chosen in shuffled_parts(self._indices, size, generator):
            yield map_nest(lambda leaf, at=chosen: leaf[at], self._rows)


class UnrollMinibatches:
    """Minibatches of whole unrolls, for a recurrent core.

    `batch` has leaves `[T, N, ...]`, apart from the states of the core before each
    unroll, `[T / L, N, ...]`. A row outside the mask comes along with its unroll, where
    it has no influence; unrolls of nothing else are in no minibatch. Rows behind such a
    row are the first of an episode. Raises ValueError unless `unroll_length` L divides
    T and there is a state an unroll.
    """

    def __init__(self, batch: PPOBatch, unroll_length: int):
        num_steps, num_streams = batch.mask.shape
        if num_steps % unroll_length:
            raise ValueError(f"{num_steps} steps are not unrolls of {unroll_length}")
        states = (num_steps // unroll_length, num_streams)
        for leaf in batch.core_state:
            if leaf.shape[:2] != states:
                raise ValueError(f"expected states {list(states)}, got {leaf.shape}")
        reset = np.zeros(batch.mask.shape, bool)
        reset[1:] = batch.mask[:-1] == 0
        # What was not an action of an episode may be anything, and is looked at here.
        log_prob = np.where(batch.mask > 0, batch.behaviour_log_prob, np.float32(0))
        self._length = unroll_length
        self._states = map_nest(_joined, batch.core_state)  # leaves [U, ...]
        timed = batch._replace(reset=reset, behaviour_log_prob=log_prob, core_state=())
        self._unrolls: PPOBatch = map_nest(self._cut, timed)  # leaves [L, U, ...]
        self._indices = np.flatnonzero(self._unrolls.mask.any(axis=0))

    def epoch(self, size: int, generator: np.random.Generator) -> Iterator[PPOBatch]:
        """Every unroll once, in minibatches of at least `size` rows.

        Where L does not divide `size`, of up to L − 1 fewer.
        """
        number = max(1, size // self._length)
        for chosen in shuffled_parts(self._indices, number, generator):
            rows = map_nest(lambda leaf, at=chosen: _joined(leaf[:, at]), self._unrolls)
            states = map_nest(lambda leaf, at=chosen: leaf[at], self._states)
            yield rows._replace(core_state=states)

    def _cut(self, array: np.ndarray) -> np.ndarray:
        """[L, T / L · N, ...] of [T, N, ...], unrolls in the order of their states."""
        parts = array.reshape(-1, self._length, *array.shape[1:])
        return np.moveaxis(parts, 1, 0).reshape(self._length, -1, *array.shape[2:])


def shuffled_parts(
    indices: np.ndarray, size: int, generator: np.random.Generator
) -> Iterator[np.ndarray]:
    """All indices in a new order, each once, in parts of at least `size`.

    What does not fill a part of its own is spread over the others: there are
    max(1, number // size) parts, whose sizes differ by 1 at most. Fewer indices than
    `size` are one part, none are none.
    """
    if len(indices):
        shuffled = generator.permutation(indices)
        yield from np.array_split(shuffled, max(1, len(indices) // size))


def _joined(array: np.ndarray) -> np.ndarray:
    """[T · N, ...] of [T, N, ...]."""
    return array.reshape(-1, *array.shape[2:])
