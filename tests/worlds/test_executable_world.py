"""Worlds with a state, which acts change and seats perceive."""

from __future__ import annotations

import pytest
from examples import BatchRepeater, Nim, Speaker

from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.executable_world import ExecutableWorld
from distrl.worlds.hogwild_world import HogwildWorld
from distrl.worlds.participant import ScriptedParticipant
from distrl.worlds.random_participant import RandomParticipant
from distrl.worlds.reducers import values

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

    def __init__(self, seed, name, first=0):
        super().__init__(2, seed, name, first)
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
    assert right.observation == {"id": "Corridor", "heard": 1}
    assert left.seen[0] == {"id": "Corridor", "heard": 0}
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
    for _ in range(5):
        world.parley()
    copy = world.share(0)
    copy.parley()
    assert [abs(place) for place in copy.places] == [1, 1]
    assert [place % 2 for place in world.places] == [1, 1]  # 5 acts each, as before
    assert world.places is not copy.places
    world.reset()
    world.parley()
    assert [abs(place) for place in world.places] == [1, 1]


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


def nim(index=None, least=7):
    return Nim([Recorded(0, "A", 1), Recorded(1, "B", 1)], index, least)


def test_seats_are_shown_the_beginning_of_each_episode():
    """Before anybody has acted: nothing is left of the episode before."""
    world = nim(ExampleIndex(2))
    while world.parley():
        pass
    for player in world.participants:
        first = [message for message in player.seen if "episode" in message]
        assert first == [
            {"id": "Nim", "observation": 7 + number, "episode": number}
            for number in (0, 1)
        ]
        second = player.seen.index(first[1])
        assert player.seen[second - 1]["episode_done"]
        assert [m.get("episode_done", False) for m in player.seen].count(True) == 2


def test_an_episode_ends_with_the_act_that_ends_it():
    world = Nim([ScriptedParticipant([{"action": 7}]), Speaker("B")], ExampleIndex(1))
    assert world.parley() and world.episode_done
    assert world.participants[1].said == 0  # it would have been its turn
    assert world.participants[0].observation["reward"] == 1.0
    assert not world.parley() and world.episodes == 1 and world.epoch_done


def test_acts_are_those_of_the_episode():
    players = [ScriptedParticipant([{"action": n} for n in ns]) for ns in ([6, 8], [1])]
    world = Nim(players, ExampleIndex(2))
    assert world.parley() and [act["action"] for act in world.acts] == [6, 1]
    assert world.parley() and [act.get("action") for act in world.acts] == [8, None]


class Secrets(ExecutableWorld):
    """Each seat sees nothing but its own number."""

    def show(self, seat):
        return {"observation": seat}

    def perceive(self, seat, actor, act):
        return {"observation": seat, "of": actor}


def test_one_in_several_seats_sees_what_each_of_them_sees():
    for batch_size in (0, 3):
        one = BatchRepeater()
        world = Secrets([one] * 3)
        played = BatchWorld(world, batch_size) if batch_size else world
        for _ in range(4):
            assert played.parley()
            for row in played.rows if batch_size else [world]:
                assert [act["action"] for act in row.acts] == [0, 1, 2]


def test_what_was_finished_is_told():
    index = ExampleIndex(9)
    index.lend([3, 8])
    world = nim(index)
    while world.parley():
        pass
    assert index.give_back() == ([], [3, 8])


def test_an_act_may_end_an_episode():
    script = [{"action": 1}, {"action": 2, "episode_done": True}]
    world = ExecutableWorld([ScriptedParticipant(script), Speaker("B")])
    done = []
    for _ in range(6):
        world.parley()
        done.append(world.episode_done)
    assert done == [False, True] * 3 and world.episodes == 3


def test_an_act_of_the_episode_before_ends_nothing():
    quits = ScriptedParticipant([{"action": 1, "episode_done": True}, {"action": 1}])
    world = ExecutableWorld([Speaker("A"), quits])
    for _ in range(4):
        world.parley()
    assert world.episodes == 2


def test_an_interrupted_episode_begins_anew():
    world = nim(ExampleIndex(3), least=100)
    world.parley()
    world.reset()
    world.parley()
    assert world.number == 0 and 96 <= world.left <= 98
    assert [m["observation"] for m in world.participants[0].seen if "episode" in m] == [
        *(100, 100)
    ]


def report(world):
    with world:
        while world.parley():
            pass
        return values(world.report())


@pytest.mark.timeout(60)
def test_games_are_the_same_and_counted_once_wherever_they_are_played():
    alone = report(nim(ExampleIndex(40)))
    assert alone["episodes"] == 40 and 0 < alone["first wins"] < 1
    assert report(BatchWorld(nim(ExampleIndex(40)), 7)) == alone
    hogwild = HogwildWorld(lambda worker: nim(ExampleIndex(40)), 2, 3)
    assert len(set(hogwild.pids)) == 2
    assert report(hogwild) == alone


def test_an_endless_game_needs_no_index():
    world = nim()
    for _ in range(50):
        assert world.parley()
    assert world.num_episodes is None and world.episodes > 5
    (index,) = world.indices().values()
    assert index.taken - world.episodes in (0, 1)
