"""What all worlds have in common: turns, counts, reports, and the order of calls."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import gymnasium

from distrl.worlds.errors import ClosedError
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.messages import Message, checked
from distrl.worlds.participant import Participant
from distrl.worlds.reducers import Metrics, Report, Sum

#: Where somebody sits: the seat's number, behind that of the sub-world in a MultiWorld.
Seat = tuple[int, ...]
#: One parley: yields whose act is needed, and is sent the act.
Turns = Generator[Seat, Message, None]


class World:
    """Participants in seats, who act in turn.

        with SomeWorld([teacher, student]) as world:
            while world.parley():
                ...
            print(values(world.report()))

    A subclass says in `turns` who acts when, and who observes it. Seats are numbers:
    the same participant may have several. Participant 0 rules: it says when an episode
    and the epoch are over. Counts grow by work that was done, and by nothing else.
    """

    def __init__(
        self,
        participants: Sequence[Participant],
        name: str = "",
        metrics: Sequence[str] | None = None,
    ):
        """`metrics` names what is reported, beside "episodes" and "steps" (None: all).
        Raises ValueError without participants, TypeError for what is none."""
        if not participants:
            raise ValueError("a world needs participants, got none")
        for participant in participants:
            if not isinstance(participant, Participant):
                raise TypeError(f"expected participants, got {participant!r}")
        self._participants = list(participants)
        self.name = name or participants[0].id
        self._shown = metrics
        self._closed = False
        self._clear()

    def _clear(self) -> None:
        self._acts: list[Message] = [{} for _ in self._participants]
        self._steps = self._episodes = 0

    @property
    def participants(self) -> Sequence[Participant]:
        """By seat."""
        return self._participants

    @property
    def acts(self) -> Sequence[Message]:
        """The newest one of each seat, {} before it."""
        return self._acts

    # What a subclass says.

    def turns(self) -> Turns:
        """One parley: yields the seat whose act is needed."""
        raise NotImplementedError(f"{type(self).__name__} has no turns()")

    def begin(self) -> bool:
        """Whether there is something to play, which is then about to begin."""
        return self.participants[0].claim()

    @property
    def episode_done(self) -> bool:
        """Whether the newest act of participant 0 was the last of an episode."""
        return bool(self.acts[0].get("episode_done", False))

    @property
    def epoch_done(self) -> bool:
        """Whether there is nothing more to play before a reset."""
        return self.participants[0].epoch_done

    # Playing.

    def parley(self) -> bool:
        """Plays one round of turns; False, at once, when the epoch is over.

        Raises ClosedError behind a shutdown, RuntimeError for an act that is no
        mapping, and what participants raise.
        """
        turns = self.play()
        if turns is None:
            return False
        drive(turns, lambda seat: self.participant(seat).act())
        return True

    def play(self) -> Turns | None:
        """The next parley, to be driven by the caller; None when the epoch is over."""
        self._check_open()
        return self._counted() if self.begin() else None

    def _counted(self) -> Turns:
        yield from self.turns()
        self._steps += 1
        self._episodes += self.episode_done

    def participant(self, seat: Seat) -> Participant:
        return self.participants[seat[0]]

    def take(self, seat: int, act: Any) -> Message:
        """Keeps what a seat has said, with its sender. Raises RuntimeError for what is
        no mapping."""
        name = self.participants[seat].id
        self._acts[seat] = message = {"id": name, **checked(act), "seat": seat}
        return message

    def tell(self, seat: int, message: Message | None) -> None:
        """Has a seat observe a message; None is nothing to observe."""
        if message is not None:
            self.participants[seat].observe(message)

    def display(self) -> str:
        """The newest acts, a line each."""
        said = [dict(act) for act in self.acts if act]
        return "\n".join(
            f"[{act.pop('id')} in seat {act.pop('seat')}] {act}" for act in said
        )

    def spaces(self, seat: int) -> tuple[gymnasium.Space, gymnasium.Space]:
        """Of the observations and actions of a seat. Raises TypeError where a world
        has none."""
        raise TypeError(f"{type(self).__name__} has no spaces")

    # Counting.

    @property
    def steps(self) -> int:
        """Parleys since the last reset, of all rows and workers."""
        return self._steps

    @property
    def episodes(self) -> int:
        """Episodes that were ended since the last reset."""
        return self._episodes

    @property
    def num_episodes(self) -> int | None:
        """Of an epoch; None where that is not known."""
        return self.participants[0].num_episodes

    @property
    def epochs(self) -> float | None:
        """Since the last reset, with fractions; None where the size is not known."""
        size = self.num_episodes
        return None if size is None else self.episodes / size

    def report(self) -> Metrics:
        """All metrics: the world's own, and those of its participants; of two that
        have the same, the first one's counts. Changes nothing."""
        found = Metrics()
        for report in self.sources().values():
            for name, reducer in report.items():
                if self.shows(name):
                    found.setdefault(name, reducer)
        return Metrics(found | self.counts())

    def measured(self) -> Report:
        """What the world itself has measured, beside the counts."""
        return {}

    def sources(self) -> dict[int, Report]:
        """What was measured, by the `id` of who did: the world, each participant."""
        return {
            id(self): self.measured(),
            **{id(one): one.report() for one in self.participants},
        }

    def shows(self, metric: str) -> bool:
        """Whether a report has it."""
        return self._shown is None or metric in self._shown

    def counts(self) -> Report:
        return {"episodes": Sum(self.episodes), "steps": Sum(self.steps)}

    def indices(self) -> Mapping[str, ExampleIndex]:
        """Those of all participants, by name. Raises ValueError for two of the same
        name."""
        found: dict[str, ExampleIndex] = {}
        for participant in self.participants:
            for name, index in participant.indices().items():
                if found.setdefault(name, index) is not index:
                    raise ValueError(f"{self.name}: two indices are named {name!r}")
        return found

    # The order of a world's life.

    def share(self, row: int) -> World:
        """A copy for row `row` of a batch, with participants that share what they can
        and an episode of its own."""
        shared = copy.copy(self)
        copies = {id(p): p.share(row) for p in self._participants}
        shared._participants = [copies[id(p)] for p in self._participants]
        shared._clear()
        return shared

    def reset(self) -> None:
        """Begins an epoch anew: episodes, indices, counts and acts; metrics too."""
        self._check_open()
        for participant in self.participants:
            participant.reset()
        self.reset_metrics()
        self._clear()

    def reset_metrics(self) -> None:
        self._check_open()
        for participant in self.participants:
            participant.reset_metrics()

    def save(self, directory: pathlib.Path) -> None:
        """Has every participant write what it has learnt."""
        self._check_open()
        for participant in self.participants:
            participant.save(directory)

    def shutdown(self) -> None:
        """Frees what the participants hold; each is asked, also when one raises. May be
        called again."""
        if not self._closed:
            self._closed = True
            shut_all([participant.shutdown for participant in self.participants])

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the world {self.name!r} was shut down")


def drive(turns: Turns, act: Callable[[Seat], Message]) -> None:
    """Plays a parley to its end with what `act` answers."""
    try:
        seat = next(turns)
        while True:
            seat = turns.send(act(seat))
    except StopIteration:
        return


def shut_all(ends: Sequence[Callable[[], None]]) -> None:
    """Calls all; raises the first error, once each was called."""
    errors = []
    for end in ends:
        try:
            end()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
