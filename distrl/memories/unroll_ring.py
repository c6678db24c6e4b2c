"""The unrolls that may be replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from distrl.core.specs import Nest, leaves
from distrl.memories.state_check import State, saved_array, saved_count


class UnrollRing:
    """The newest unrolls that may be replayed; each at most `max_reuse` times.

    Position i of `size` holds one of them at slot `_slots[i]` of the columns; the
    slots behind are free.
    """

    def __init__(self, spec: Nest, capacity: int, max_reuse: int | None):
        self.capacity, self.max_reuse = capacity, max_reuse
        self.columns = [leaf.zeros(capacity) for leaf in leaves(spec)]
        self.size = 0
        self._slots = np.arange(capacity)
        self._number = np.zeros(capacity, np.int64)  # counts what was ever stored
        self._uses = np.zeros(capacity, np.int64)
        self._next = 0

    def store(self, arrays: Sequence[np.ndarray], row: int) -> None:
        """Copies one row, in the place of the oldest one if there is no other."""
        if self.size < self.capacity:
            position = self.size
            self.size += 1
        else:
            position = int(self._number.argmin())
        self._number[position], self._uses[position] = self._next, 0
        self._next += 1
        slot = self._slots[position]
        for column, array in zip(self.columns, arrays, strict=True):
            column[slot] = array[row]

    def draw(self, share: float) -> int:
        """The slot of the one at this share, in [0, 1), of all; to be read before
        anything else is stored."""
        position = int(share * self.size)
        slot = int(self._slots[position])
        self._uses[position] += 1
        if self._uses[position] == self.max_reuse:
            self._drop(position)
        return slot

    def _drop(self, position: int) -> None:
        """Puts the last one in its place."""
        self.size -= 1
        for array in (self._slots, self._number, self._uses):
            array[position], array[self.size] = array[self.size], array[position]

    def state(self) -> dict[str, np.ndarray]:
        used = self._slots[: self.size]
        return {
            "number": self._number[: self.size].copy(),
            "uses": self._uses[: self.size].copy(),
            "next": np.array(self._next),
            **{f"column_{i}": column[used] for i, column in enumerate(self.columns)},
        }

    def prepare_restore(self, state: State) -> Callable[[], None]:
        """What takes `state` over once it is called; nothing changes before.

        Raises ValueError for what is no such state.
        """
        number = saved_array(state, "number", np.int64, (None,))
        size = len(number)
        if size > self.capacity:
            raise ValueError(f"a state of {size} unrolls, capacity {self.capacity}")
        uses = saved_array(state, "uses", np.int64, (size,))
        next_number = saved_count(state, "next")
        columns = [
            saved_array(state, f"column_{i}", c.dtype, (size, *c.shape[1:]))
            for i, c in enumerate(self.columns)
        ]

        def take_over() -> None:
            self.size, self._next = size, next_number
            self._slots = np.arange(self.capacity)
            self._number[:size], self._uses[:size] = number, uses
            for target, column in zip(self.columns, columns, strict=True):
                target[:size] = column

        return take_over
