"""Fragments that are trained on again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

import numpy as np

from distrl.core.nests import map_nest
from distrl.core.specs import Nest


class FragmentReplay:
    """The newest `slots` fragments, of which some are drawn behind each new one.

    `proportion` is the mean number of draws for a new fragment: floor(proportion)
    always, and one more with a probability of what is left. There are none until
    `min_stored` fragments are stored. Raises ValueError for numbers that never let a
    draw happen, or are negative.
    """

    def __init__(
        self,
        slots: int,
        proportion: float,
        min_stored: int,
        generator: np.random.Generator,
    ):
        check_replay(slots, proportion, min_stored)
        self._proportion, self._min_stored = proportion, min_stored
        self._stored: deque[Nest] = deque(maxlen=slots)
        self._generator = generator

    def add(self, fragment: Nest) -> None:
        """Stores a copy, which nobody can write to, in place of the oldest."""
        self._stored.append(map_nest(_frozen_copy, fragment))

    def draw(self) -> Iterator[Nest]:
        """What to replay behind a new fragment; each of the stored is as likely."""
        if self._proportion == 0 or len(self._stored) < self._min_stored:
            return
        for _ in range(num_draws(self._proportion, self._generator)):
            yield self._stored[int(self._generator.integers(len(self._stored)))]


def num_draws(proportion: float, generator: np.random.Generator) -> int:
    """A random whole number with mean `proportion`, next to it."""
    whole = math.floor(proportion)
    return whole + int(generator.random() < proportion - whole)


def check_replay(slots: int, proportion: float, min_stored: int) -> None:
    """Raises ValueError for a replay that could never happen."""
    if slots < 0:
        raise ValueError(f"replay_slots must be at least 0, got {slots}")
    if not 0 <= proportion < math.inf:
        raise ValueError(f"replay_proportion must be at least 0, got {proportion}")
    if proportion and slots < min_stored:
        raise ValueError(
            f"replay begins with {min_stored} stored fragments and can never happen "
            f"with {slots} replay_slots"
        )


def _frozen_copy(leaf: np.ndarray) -> np.ndarray:
    copied = np.array(leaf)
    copied.flags.writeable = False
    return copied
