"""Which examples (levels, seeds, questions) come next, each as often as it should."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np

Order = Literal["ordered", "random"]


class IndexSettings(NamedTuple):
    """How many examples there are, and in what order they come."""

    size: int | None  # None: there is always one more
    order: Order = "ordered"  # random: each epoch in an order of its own
    repeats: bool = False  # epoch follows epoch, as in training
    seed: int = 0

    def numbers(self) -> Iterator[int]:
        """One epoch, or all of them for one that repeats."""
        if self.size is None:
            number = 0
            while True:
                yield number
                number += 1
        random = np.random.default_rng(self.seed)
        while True:
            ordered = self.order == "ordered"
            yield from (
                range(self.size) if ordered else random.permutation(self.size).tolist()
            )
            if not self.repeats:
                return


class ExampleIndex:
    """Hands out the numbers of examples; one index is shared by all copies of a world.

        number = index.take()       # None: there is none
        ...
        index.finish(number)        # it was played to its end

    Each example of an epoch is handed out exactly once. `reset` begins an epoch anew.
    In a worker process an index hands out only what it was lent: see `lend`.
    """

    def __init__(
        self,
        size: int | None,
        order: Order = "ordered",
        repeats: bool = False,
        seed: int = 0,
    ):
        """Raises ValueError for no examples, and an unknown order."""
        if size is not None and size < 1:
            raise ValueError(f"an index needs an example or more, got {size}")
        if order not in get_args(Order):
            raise ValueError(f"order: one of {get_args(Order)}, got {order!r}")
        self.settings = IndexSettings(size, order, repeats, seed)
        self._lent: deque[int] | None = None
        self.reset()

    def reset(self) -> None:
        """Begins anew. What was lent is forgotten."""
        self._numbers = self.settings.numbers()
        self._next = next(self._numbers, None)
        self.taken = 0  # examples
        self._finished: list[int] = []
        if self._lent is not None:
            self._lent.clear()

    @property
    def available(self) -> bool:
        """Whether `take` would find an example now."""
        return bool(self._lent) if self._lent is not None else self._next is not None

    def take(self) -> int | None:
        """The number of the next example, None when there is none."""
        if self._lent is not None:
            number = self._lent.popleft() if self._lent else None
        else:
            number, self._next = self._next, next(self._numbers, None)
        self.taken += number is not None
        return number

    def finish(self, number: int) -> None:
        """An example was played to its end. Only who was lent it has to remember."""
        if self._lent is not None:
            self._finished.append(number)

    # Of the processes that share an index, one has it and lends numbers to the others.

    def lend(self, numbers: Iterable[int]) -> None:
        """From now on, only these are handed out, behind those that were lent."""
        self._lent = self._lent if self._lent is not None else deque()
        self._lent.extend(numbers)

    def give_back(self) -> tuple[list[int], list[int]]:
        """What was lent and not taken, and what was finished since the last time."""
        unused, self._lent = list(self._lent or ()), deque()
        finished, self._finished = self._finished, []
        return unused, finished
