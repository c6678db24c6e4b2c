"""Worlds that rule themselves: episodes come from an index, not from a participant."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence

from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant
from distrl.worlds.reducers import Metrics, Report
from distrl.worlds.world import World


class NumberedWorld(World):
    """Has a state, which begins anew with each episode; `number` is the episode's.

    What is measured goes into `metrics`, which the copies of a world have in common.
    """

    def __init__(
        self,
        participants: Sequence[Participant],
        index: ExampleIndex | None = None,
        name: str = "",
    ):
        """Without an index there is always one more episode, from number 0. Raises
        ValueError without participants."""
        self._index = ExampleIndex(None) if index is None else index
        self.metrics = Metrics()
        super().__init__(participants, name or type(self).__name__)

    def _clear(self) -> None:
        super()._clear()
        self.number: int | None = None  # of the episode under way
        self._over = False  # the newest episode
        self._views: dict[int, Message] = {}  # by seat

    # What a subclass says.

    @abc.abstractmethod
    def begin_episode(self, number: int) -> None:
        """Makes the state of the world, in the first parley of an episode."""

    # What a subclass calls.

    def tell_own(self, seat: int, message: Message) -> None:
        """Tells a seat what it sees, which may not be what the others see."""
        self.tell(seat, message)
        self._views[seat] = self.participants[seat].observation

    def recall(self, seat: int) -> None:
        """Before a seat is asked: who sits in several of them has been told since what
        the others see."""
        if seat in self._views:
            self.participants[seat].observation = self._views[seat]

    def end_episode(self) -> None:
        """The parley under way is the last one of the episode."""
        if self.number is not None:
            self._index.finish(self.number)
        self.number, self._over = None, True

    # Playing.

    def begin(self) -> bool:
        if self.number is None:
            number = self._index.take()
            if number is None:
                return False
            self._acts = [{} for _ in self._acts]
            self.number, self._over, self._views = number, False, {}
            self.begin_episode(number)
        return True

    @property
    def num_episodes(self) -> int | None:
        return self._index.settings.size

    @property
    def episode_done(self) -> bool:
        return self._over

    @property
    def epoch_done(self) -> bool:
        return self.number is None and not self._index.available

    # Counting, and the order of its life.

    def measured(self) -> Report:
        return self.metrics

    def reset_metrics(self) -> None:
        super().reset_metrics()
        self.metrics.clear()

    def indices(self) -> Mapping[str, ExampleIndex]:
        return {**super().indices(), self.name: self._index}

    def reset(self) -> None:
        super().reset()
        self._index.reset()
