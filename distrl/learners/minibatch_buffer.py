"""Batches that are trained on more than once, interleaved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class MinibatchBuffer(Generic[T]):
    """A ring of `size` slots; each `get` serves the next slot's item once more.

    An item leaves its slot after its last pass, and the slot takes a new one from
    `get_item` when its turn comes again. The passes ramp up, so that slots do not all
    run out at the same time: the first item gets `initial_passes`, each later one a
    pass more than the one before, until `num_passes`.

    Raises ValueError for a number below 1, or `initial_passes` above `num_passes`.
    """

    def __init__(
        self,
        get_item: Callable[[], T],
        size: int = 1,
        num_passes: int = 1,
        initial_passes: int = 1,
    ):
        check_passes(size, num_passes, initial_passes)
        self._get_item, self._num_passes = get_item, num_passes
        self._next_passes = initial_passes
        self._slots: list[T | None] = [None] * size
        self._passes_left = [0] * size
        self._turn = 0

    def get(self) -> tuple[T, bool]:
        """An item, and whether this is its last pass.

        Its owner may use its memory again once *this* pass has been trained on. What
        `get_item` raises changes nothing here.
        """
        turn = self._turn
        if self._passes_left[turn] == 0:
            self._slots[turn] = self._get_item()
            self._passes_left[turn] = self._next_passes
            self._next_passes = min(self._next_passes + 1, self._num_passes)
        item = self._slots[turn]
        self._passes_left[turn] -= 1
        self._turn = (turn + 1) % len(self._slots)
        released = self._passes_left[turn] == 0
        if released:
            self._slots[turn] = None
        return item, released  # type: ignore[return-value]  # a filled slot's


def check_passes(size: int, num_passes: int, initial_passes: int) -> None:
    """Raises ValueError unless a MinibatchBuffer can be made of these."""
    if size < 1:
        raise ValueError(f"minibatch_buffer_size must be at least 1, got {size}")
    if num_passes < 1:
        raise ValueError(f"num_passes must be at least 1, got {num_passes}")
    if not 1 <= initial_passes <= num_passes:
        raise ValueError(
            f"initial_passes must be in [1, num_passes = {num_passes}], "
            f"got {initial_passes}"
        )
