"""Participants and worlds that the tests of worlds play with."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from distrl.worlds.example_index import ExampleIndex, Order
from distrl.worlds.executable_world import ExecutableWorld
from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.reducers import Ratio, Report, Sum
from distrl.worlds.world import World

LOOP_GUARD = 10  # times the parleys that an epoch should take


class CountingTeacher(Participant):
    """Asks for the number of each example, for `steps` parleys.

    Metrics, once the last question was answered: "correct", and "id/<number>": how
    often the example was played.
    """

    def __init__(
        self,
        num_examples: int | None,
        order: Order = "ordered",
        repeats: bool = False,
        steps: int = 1,
        seed: int = 0,
        name: str = "teacher",
    ):
        super().__init__(name)
        self._index = ExampleIndex(num_examples, order, repeats, seed)
        self._steps = steps
        self.num_episodes = num_examples
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._number: int | None = None  # of the episode under way
        self._step = 0

    def claim(self) -> bool:
        if self._number is None:
            self._number = self._index.take()
        return self._number is not None

    @property
    def epoch_done(self) -> bool:
        return self._number is None and not self._index.available

    def act(self) -> Message:
        first = {"episode": self._number} if self._step == 0 else {}
        self._step += 1
        done = self._step == self._steps
        return {"observation": self._number, "episode_done": done, **first}

    def observe(self, message: Message) -> None:
        super().observe(message)
        number = self._number
        if number is not None and self._step == self._steps:
            self.metrics.add("correct", Ratio(message.get("action") == number, 1))
            self.metrics.add(f"id/{number}", Sum(1))
            self._index.finish(number)
            self._begin_anew()

    def share(self, row: int) -> CountingTeacher:
        shared = copy.copy(self)
        shared.observation = {}
        shared._begin_anew()
        return shared

    def indices(self) -> Mapping[str, ExampleIndex]:
        return {self.id: self._index}

    def reset(self) -> None:
        super().reset()
        self._index.reset()
        self._begin_anew()


class Repeater(Participant):
    """Answers with what it was shown."""

    def act(self) -> Message:
        return {"action": self.observation["observation"]}


class BatchRepeater(Participant):
    """The same for all rows at once; `calls` has what it was given each time."""

    def __init__(self, name: str = ""):
        super().__init__(name)
        self.calls: list[list[Message]] = []

    def act(self) -> Message:
        return {"action": self.observation["observation"]}

    def batch_act(self, messages: Sequence[Message]) -> list[Message]:
        self.calls.append(list(messages))
        return [
            {"action": message["observation"]} if message else {}
            for message in messages
        ]


class Speaker(Participant):
    """Says "<name> <n>" the n-th time; keeps what it hears, and both in `events`, which
    it may have with others."""

    def __init__(self, name: str, events: list[str] | None = None):
        super().__init__(name)
        self.events = [] if events is None else events
        self.heard: list[Message] = []
        self.said = 0

    def act(self) -> Message:
        self.events.append(f"{self.id} acts")
        self.said += 1
        return {"action": f"{self.id} {self.said}"}

    def observe(self, message: Message) -> None:
        super().observe(message)
        self.events.append(f"{self.id} observes {message.get('action')}")
        self.heard.append(message)

    def share(self, row: int) -> Speaker:
        shared = copy.copy(self)
        shared.observation, shared.heard, shared.said = {}, [], 0
        return shared

    def reset(self) -> None:
        super().reset()
        self.heard, self.said = [], 0


class Nim(ExecutableWorld):
    """Who takes the last one wins; how many there are follows from the number."""

    def __init__(self, participants, index=None, least=7):
        super().__init__(participants, index)
        self.least = least

    def init_world(self):
        self.left = self.least + self.number % 3

    def show(self, seat):
        return {"observation": np.int64(self.left)}

    def execute(self, seat, act):
        self.left -= act["action"]
        if self.left <= 0:
            self.metrics.add("first wins", Ratio(seat == 0, 1))

    def perceive(self, seat, actor, act):
        won = float(seat == actor) if self.over(act) else 0.0
        return {**self.show(seat), "reward": won}

    def over(self, act):
        return self.left <= 0


class Life(Participant):
    """Notes what is asked of it beside playing."""

    def __init__(self, name: str = "life"):
        super().__init__(name)
        self.asked: Counter[str] = Counter()
        self.is_copy = False

    def act(self) -> Message:
        return {"action": self.id}

    def share(self, row: int) -> Life:
        shared = copy.copy(self)
        shared.observation, shared.is_copy = {}, True
        return shared

    def reset(self) -> None:
        super().reset()
        self._note("reset")

    def save(self, directory) -> None:
        self._note(f"save {directory}")

    def shutdown(self) -> None:
        self._note("shutdown")

    def _note(self, what: str) -> None:
        self.asked["copy " * self.is_copy + what] += 1


def counting_world(*arguments, student: Participant | None = None, **kwargs) -> World:
    """A CountingTeacher of these arguments, and a student that repeats."""
    return PartnerWorld([CountingTeacher(*arguments, **kwargs), student or Repeater()])


def play_epoch(world: World, expected: int) -> int:
    """Plays until the epoch is over, and returns the number of parleys. Fails for a
    world that takes far more of them than expected."""
    for parleys in range(LOOP_GUARD * expected + 1):
        if not world.parley():
            return parleys
    raise AssertionError(f"{world.name}: not over in {LOOP_GUARD * expected} parleys")


def played(report: Report) -> dict[int, int]:
    """How often each example was played, by a CountingTeacher's metrics."""
    return {
        int(name.partition("/")[2]): int(reducer.value)
        for name, reducer in report.items()
        if name.startswith("id/")
    }


def each_once(number: int) -> dict[int, int]:
    return dict.fromkeys(range(number), 1)


def parleys(world: World, number: int, look: Callable[[], object]) -> list[object]:
    """What a look at the world shows after each of so many parleys."""
    seen = []
    for _ in range(number):
        assert world.parley()
        seen.append(look())
    return seen
