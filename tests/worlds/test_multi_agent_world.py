"""Round robin, in which everyone hears everyone."""

from __future__ import annotations

import pytest
from examples import (
    CountingTeacher,
    Repeater,
    Speaker,
    each_once,
    play_epoch,
    played,
)

from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.multi_agent_world import MultiAgentWorld
from distrl.worlds.participant import Participant, ScriptedParticipant

pytestmark = pytest.mark.timeout(20)


def test_the_order_of_a_round():
    events: list[str] = []
    world = MultiAgentWorld([Speaker(name, events) for name in "ABC"])
    assert world.parley()
    assert events == [
        "A acts",
        "B observes A 1",
        "C observes A 1",
        "B acts",
        "A observes B 1",
        "C observes B 1",
        "C acts",
        "A observes C 1",
        "B observes C 1",
    ]


def test_equal_names_hear_each_other():
    """Fault 20"""
    twins = [Speaker("twin") for _ in range(2)]
    MultiAgentWorld(twins).parley()
    assert [[m["seat"] for m in twin.heard] for twin in twins] == [[1], [0]]


def test_one_in_two_seats_hears_itself():
    """W-24, fault 18"""
    one = Speaker("self")
    MultiAgentWorld([one, one]).parley()
    assert [message["seat"] for message in one.heard] == [0, 1]


def test_anybody_ends_an_episode():
    """Fault 17: participants need not know of episodes."""
    script = [{}, {"episode_done": True}]
    world = MultiAgentWorld([Speaker("A"), Speaker("B"), ScriptedParticipant(script)])
    seen = []
    for _ in range(4):
        world.parley()
        seen.append((world.episode_done, world.episodes))
    assert seen == [(False, 0), (True, 1), (False, 1), (True, 2)]
    world.reset()
    assert not world.episode_done


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_epoch_ends_with_the_first_who_has_no_more(batch_size):
    short, long = CountingTeacher(3, name="short"), CountingTeacher(7, name="long")
    world = BatchWorld(MultiAgentWorld([long, short, Repeater()]), batch_size)
    for _ in range(2):
        play_epoch(world, 3)
        assert world.epoch_done
        assert (world.episodes, played(short.metrics)) == (3, each_once(3))
        assert world.indices()["long"].taken == 3  # nothing was taken and not played
        world.reset()


def test_everyone_is_shut_down_and_reported():
    world = MultiAgentWorld([CountingTeacher(2), Repeater(), Participant()])
    assert {"episodes", "steps"} == set(world.report())
    world.shutdown()
    world.shutdown()


class Opening(Participant):
    """Opens each game with a context of its own; the others go on from there."""

    def __init__(self, openers):
        super().__init__("opener")
        self._openers, self._index = openers, ExampleIndex(len(openers))
        self.num_episodes = len(openers)
        self._opener = None
        self._left = 0  # acts of the game

    def claim(self):
        if not self._left:
            number = self._index.take()
            self._opener = None if number is None else self._openers[number]
            self._left = 3
        return self._opener is not None

    @property
    def epoch_done(self):
        return not self._left and not self._index.available

    def act(self):
        said = self._opener if self._left == 3 else f"re {self.observation['action']}"
        self._left -= 1
        return {"action": said, "episode_done": not self._left}


def test_games_open_with_their_contexts():
    """W-21: each once, and word for word."""
    openers = ["x", "y", "z"]
    player = Speaker("B")
    world = MultiAgentWorld([Opening(openers), player])
    opened, again = [], True
    while world.parley():
        if again:
            opened.append(world.acts[0]["action"])
        again = world.episode_done
    assert opened == openers
    assert world.episodes == 3
    assert [m["action"] for m in player.heard[:2]] == ["x", "re B 1"]


def test_first_acts_of_a_script():
    """W-21: openers [x, y] are the first acts of the first two seats."""
    openers = [[{"action": "x"}], [{"action": "y"}]]
    world = MultiAgentWorld([ScriptedParticipant(script) for script in openers])
    world.parley()
    assert [act["action"] for act in world.acts] == ["x", "y"]
