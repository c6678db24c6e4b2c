"""Worlds with a state, which acts change and seats perceive."""

from __future__ import annotations

import pytest
from examples import Speaker

from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.executable_world import ExecutableWorld
from distrl.worlds.participant import ScriptedParticipant
from distrl.worlds.random_participant import RandomParticipant

pytestmark = pytest.mark.timeout(20)


class Corridor(ExecutableWorld):
    """Everyone goes left or right, and sees where they are; the others only hear."""

    def init_world(self):
        self.places = [0 for _ in self.participants]

    def execute(self, seat, act):
        self.places[seat] += 1 if act["action"] else -1

    def perceive(self, seat, actor, act):
        if seat != actor:
            return {"heard": actor}
        return {"place": self.places[seat], "legal_actions": [True, True]}


class Recorded(RandomParticipant):
    """Keeps what it observes."""

    def __init__(self, seed, name):
        super().__init__(2, seed, name)
        self.seen = []

    def observe(self, message):
        super().observe(message)
        self.seen.append(message)

    def share(self, row):
        shared = super().share(row)
        shared.seen = []
        return shared


def corridor():
    return Corridor([Recorded(1, "A"), Recorded(2, "B")])


def test_an_act_is_executed_and_then_perceived():
    """Also by who acted."""
    right, left = ScriptedParticipant([{"action": 1}]), Recorded(0, "B")
    world = Corridor([right, left])
    world.parley()
    assert world.places[0] == 1
    assert right.observation == {"heard": 1}
    assert left.seen[0] == {"heard": 0}
    assert left.seen[1]["place"] == world.places[1] != 0


def test_by_default_all_others_observe_an_act():
    """Faults 19, 20: the actor observes nothing, equal names hear each other."""
    twins = [Speaker("twin"), Speaker("twin")]
    assert ExecutableWorld(twins).parley()
    assert [[message["seat"] for message in t.heard] for t in twins] == [[1], [0]]


def test_nothing_to_observe():
    """Fault 19: None leaves the newest observation as it was."""

    class Secret(ExecutableWorld):
        def perceive(self, seat, actor, act):
            return act if actor == 0 else None

    speakers = [Speaker("A"), Speaker("B")]
    Secret(speakers).parley()
    assert [len(speaker.heard) for speaker in speakers] == [1, 1]


def test_copies_and_resets_begin_anew():
    world = corridor()
    world.parley()
    copy = world.share(0)
    assert copy.places == [0, 0]
    copy.parley()
    assert world.places is not copy.places
    world.reset()
    assert world.places == [0, 0]


def test_rows_are_like_single_worlds():
    """W-23, fault 19"""
    batch = BatchWorld(corridor(), 4)
    singles = [corridor().share(row) for row in range(4)]
    for _ in range(10):
        assert batch.parley()
        assert all([single.parley() for single in singles])
    for row, single in zip(batch.rows, singles, strict=True):
        assert row.places == single.places
        for mine, theirs in zip(row.participants, single.participants, strict=True):
            assert mine.seen == theirs.seen
            assert len(mine.seen) == 20
    trajectories = [str(row.participants[0].seen) for row in batch.rows]
    assert len(set(trajectories)) > 1  # rows have chances of their own
