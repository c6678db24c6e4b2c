"""What a recurrent core remembers of the streams that it acts on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distrl.core.nests import map_nest
from distrl.core.specs import Nest, leaves


class CoreStates:
    """The states of N streams, leaves `[N, ...]`; nothing without a core."""

    def __init__(self, spec: Nest, num_streams: int):
        """All zero, as before the first step of an episode."""
        self.now: Nest = map_nest(lambda leaf: leaf.zeros(num_streams), spec)

    def of(self, slots: slice) -> Nest:
        """Those of some streams, as views."""
        return map_nest(lambda leaf: leaf[slots], self.now)

    def keep(self, state: Nest, slots: slice = slice(None)) -> None:
        """Takes over the states of some streams behind a step."""
        for own, new in zip(leaves(self.now), leaves(state), strict=True):
            own[slots] = new

    def clear(self, begins: np.ndarray) -> None:
        """Zero where `begins`, bool `[N]`, says that the next row is an episode's
        first."""
        for own in leaves(self.now):
            own[begins] = 0


class RememberingPolicy:
    """A function of observations alone, of a step that also takes and gives states.

    `step(observation, core_state)` returns actions and the states behind the step.
    """

    def __init__(
        self, step: Callable[[Nest, Nest], tuple[Nest, Nest]], core_spec: Nest
    ):
        self._step, self._spec = step, core_spec
        self._states, self._size = CoreStates(core_spec, 0), 0

    def act(self, observation: Nest, began: np.ndarray | None = None) -> Nest:
        """Actions for rows `[N, ...]` that go on from the rows of the call before.

        `began`, bool `[N]`, is True where one is the first of its episode (None:
        nowhere). Another N starts all of them anew.
        """
        size = len(leaves(observation)[0])
        if size != self._size:
            self._states, self._size = CoreStates(self._spec, size), size
        elif began is not None:
            self._states.clear(began)
        action, state = self._step(observation, self._states.now)
        self._states.keep(state)
        return action
