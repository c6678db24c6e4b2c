"""A ring of frames, each stored once, and numbered for ever."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distrl.core.nests import flatten_as, unflatten_as
from distrl.core.specs import Nest, leaves
from distrl.memories.state_check import State, saved_array, saved_count


class FrameStore:
    """The newest `capacity` frames; frame number n lies at slot n % capacity.

    `spec` is that of one frame (`records.frame_spec`). Memory is asked for at once but
    touched only as frames come in.
    """

    def __init__(self, spec: Nest, capacity: int):
        if not 1 <= capacity < 2**31:
            raise ValueError(f"capacity must be in [1, 2**31), got {capacity}")
        self.capacity = capacity
        self.written = 0  # frames ever appended = number of the next one
        self._spec = spec
        self._rings = [leaf.zeros(capacity) for leaf in leaves(spec)]

    @property
    def oldest(self) -> int:
        """The number of the oldest frame that is still there."""
        return max(0, self.written - self.capacity)

    @property
    def num_bytes(self) -> int:
        return sum(ring.nbytes for ring in self._rings)

    def append(self, frames: Nest) -> int:
        """Stores frames `[F, ...]`, returns the number of the first one.

        Of more frames than the capacity only the last ones stay.
        """
        first = self.written
        for ring, array in zip(
            self._rings, flatten_as(self._spec, frames), strict=True
        ):
            count = len(array)
            write_ring(ring, first + max(0, count - self.capacity), array)
        self.written += count
        return first

    def slots(self, numbers: np.ndarray) -> np.ndarray:
        """Where frames lie, int32, for `take`."""
        return (numbers % self.capacity).astype(np.int32)

    def take(self, leaf: int, slots: np.ndarray) -> np.ndarray:
        """A copy of leaf number `leaf` at `slots`, `[*slots.shape, ...]`.

        Whether a slot still holds the frame that is meant is for the caller to know.
        """
        return self._rings[leaf].take(slots, axis=0)

    def gather(self, numbers: np.ndarray) -> Nest:
        """Copies of the frames with these numbers, leaves `[*numbers.shape, ...]`.

        Raises ValueError for a number whose frame is not there (any more).
        """
        numbers = np.asarray(numbers, np.int64)
        gone = (numbers < self.oldest) | (numbers >= self.written)
        if gone.any():
            raise ValueError(
                f"frame {numbers[gone].flat[0]} is not in "
                f"[{self.oldest}, {self.written})"
            )
        slots = self.slots(numbers)
        taken = [self.take(leaf, slots) for leaf in range(len(self._rings))]
        return unflatten_as(self._spec, taken)

    def state(self) -> dict[str, np.ndarray]:
        """Copies of what is stored and the counter."""
        used = min(self.written, self.capacity)
        state = {f"leaf_{i}": ring[:used].copy() for i, ring in enumerate(self._rings)}
        return {**state, "written": np.array(self.written)}

    def prepare_restore(self, state: State) -> Callable[[], None]:
        """What takes `state` over once it is called; nothing changes before.

        Raises ValueError for frames of another spec or number.
        """
        written = saved_count(state, "written")
        used = min(written, self.capacity)
        arrays = [
            saved_array(state, f"leaf_{i}", ring.dtype, (used, *ring.shape[1:]))
            for i, ring in enumerate(self._rings)
        ]

        def take_over() -> None:
            self.written = written
            for ring, array in zip(self._rings, arrays, strict=True):
                ring[:used] = array

        return take_over


def write_ring(ring: np.ndarray, number: int, array: np.ndarray) -> None:
    """Writes the last rows of `array` that fit, the first of them at `number`."""
    array = array[-len(ring) :]
    slot = number % len(ring)
    until_end = len(ring) - slot
    ring[slot : slot + len(array)] = array[:until_end]
    ring[: max(0, len(array) - until_end)] = array[until_end:]
