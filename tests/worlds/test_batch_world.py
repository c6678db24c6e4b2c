"""Rows of a world, with one batched act a seat."""

from __future__ import annotations

from functools import partial

import pytest
from examples import (
    BatchRepeater,
    CountingTeacher,
    Life,
    Repeater,
    counting_world,
    each_once,
    play_epoch,
    played,
)

from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.errors import ClosedError
from distrl.worlds.multi_agent_world import MultiAgentWorld
from distrl.worlds.participant import Participant
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.reducers import values

pytestmark = pytest.mark.timeout(30)


# Exactness.


@pytest.mark.parametrize(
    "number, batch_size, parleys",
    [(100, 1, 100), (100, 8, 13), (10, 4, 3), (100, 4, 25), (100, 7, 15), (100, 64, 2)],
)
def test_counts_are_exact(number, batch_size, parleys):
    """W-5, W-22: what fills the last batch is not counted."""
    world = BatchWorld(counting_world(number, student=BatchRepeater()), batch_size)
    assert play_epoch(world, number) == parleys
    report = values(world.report())
    assert (report["episodes"], report["steps"]) == (number, number)
    assert report["correct"] == 1


@pytest.mark.parametrize("order", ["ordered", "random"])
@pytest.mark.parametrize("batch_size", [1, 3, 8, 32])
@pytest.mark.parametrize("student", [Repeater, BatchRepeater])
def test_each_example_once(order, batch_size, student):
    """W-5, W-6, W-10"""
    world = BatchWorld(counting_world(17, order, student=student()), batch_size)
    for _ in range(2):
        play_epoch(world, 17)
        assert played(world.report()) == each_once(17)
        assert (world.episodes, world.epochs, world.epoch_done) == (17, 1.0, True)
        assert not world.parley()
        world.reset()
        assert (world.episodes, world.epoch_done) == (0, False)


def test_a_batch_larger_than_what_there_is():
    """Fault 21: rows without an example have {}."""
    student = BatchRepeater()
    world = BatchWorld(counting_world(2, student=student), 4)
    assert world.parley()
    shown = [message.get("observation") for message in student.calls[0]]
    assert shown == [0, 1, None, None]
    assert [bool(row[0]) for row in world.acts] == [True, True, False, False]
    assert world.episodes == 2


def test_episodes_of_many_steps():
    world = BatchWorld(counting_world(5, steps=3, student=BatchRepeater()), 2)
    assert play_epoch(world, 15) == 9
    assert (world.episodes, world.steps) == (5, 15)
    assert played(world.report()) == each_once(5)


def test_training_goes_on():
    world = BatchWorld(counting_world(3, repeats=True, student=BatchRepeater()), 8)
    for _ in range(10):
        assert world.parley()
    assert world.episodes == 80
    assert sum(played(world.report()).values()) == 80


def test_a_reset_amid_episodes():
    world = BatchWorld(counting_world(5, steps=3, student=BatchRepeater()), 2)
    world.parley()
    world.reset()
    play_epoch(world, 15)
    assert played(world.report()) == each_once(5)


def test_a_reset_behind_an_error():
    class Failing(Repeater):
        fails = True

        def act(self):
            if Failing.fails and self.observation["observation"] == 3:
                raise OverflowError("three")
            return super().act()

    world = BatchWorld(counting_world(7, steps=2, student=Failing()), 4)
    with pytest.raises(OverflowError, match="three"):
        play_epoch(world, 14)
    Failing.fails = False
    world.reset()
    play_epoch(world, 14)
    assert played(world.report()) == each_once(7)


# One act for all.


class BatchTeacher(Participant):
    """Batched in seat 0."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def batch_act(self, messages):
        self.calls.append(messages)
        return [{"observation": row} for row in range(len(messages))]


def test_the_original_is_asked_once_for_all_rows():
    teacher, student = BatchTeacher(), BatchRepeater()
    world = BatchWorld(PartnerWorld([teacher, student]), 4)
    for _ in range(3):
        world.parley()
    assert len(teacher.calls) == len(student.calls) == 3
    assert teacher.calls[0] == [{}] * 4  # fault 21: a list, from the beginning
    assert [m["action"] for m in teacher.calls[1]] == [0, 1, 2, 3]
    assert [m["observation"] for m in student.calls[0]] == [0, 1, 2, 3]


def test_one_policy_in_two_seats():
    """W-24"""

    class Player(Participant):
        def __init__(self):
            super().__init__()
            self.calls = []

        def batch_act(self, messages):
            self.calls.append([m.get("seat") for m in messages])
            return [{"action": row} for row, _ in enumerate(messages)]

    player = Player()
    world = BatchWorld(MultiAgentWorld([player, player]), 3)
    world.parley()
    assert player.calls == [[None] * 3, [0] * 3]  # seat 1 hears what seat 0 said
    world.parley()
    assert player.calls[2:] == [[1] * 3, [0] * 3]


def test_rows_act_alone_without_a_batched_act():
    """W-22"""
    student = Repeater()
    world = BatchWorld(counting_world(4, student=student), 4)
    world.parley()
    assert student.observation == {}
    answers = [row.acts[1]["action"] for row in world.rows]
    assert answers == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "acts, returned", [([{}] * 3, "3 acts"), ([{}] * 5, "5 acts"), (None, "None")]
)
def test_a_wrong_number_of_acts(acts, returned):
    """W-22, fault 21"""

    class Wrong(Participant):
        def batch_act(self, messages):
            return acts

    world = BatchWorld(counting_world(9, student=Wrong("wrong")), 4)
    with pytest.raises(RuntimeError, match=f"wrong: .* 4 messages .* {returned}"):
        world.parley()


@pytest.mark.parametrize("act", [None, [{}]], ids=str)
def test_each_act_is_a_mapping(act):
    """W-2, fault 21"""

    class Wrong(Participant):
        def batch_act(self, messages):
            return [act for _ in messages]

    world = BatchWorld(counting_world(9, student=Wrong()), 4)
    with pytest.raises(RuntimeError, match="Must return dictionary"):
        world.parley()


def test_the_act_of_an_idle_row_is_not_looked_at():
    class Careless(BatchRepeater):
        def batch_act(self, messages):
            acts = super().batch_act(messages)
            return [act or None for act in acts]

    world = BatchWorld(counting_world(3, student=Careless()), 2)
    assert play_epoch(world, 3) == 2


def test_rows_that_need_other_seats():
    """Worlds in which the seat on turn is not the same in all rows."""

    class Shifted(MultiAgentWorld):
        turn = 0

        def share(self, row):
            shared = super().share(row)
            shared.turn = row % 2
            return shared

        def turns(self):
            self.take(self.turn, (yield (self.turn,)))
            self.turn = 1 - self.turn

    class Player(Participant):
        def __init__(self, name):
            super().__init__(name)
            self.rows = []

        def batch_act(self, messages):
            self.rows.append(len(messages))
            return [{"action": self.id} for _ in messages]

    players = [Player("A"), Player("B")]
    world = BatchWorld(Shifted(players), 4)
    world.parley()
    said = [[act.get("action") for act in row] for row in world.acts]
    assert said == [["A", None], [None, "B"]] * 2
    assert [player.rows for player in players] == [[4], [4]]


# Its life, and what it is asked.


def test_copies_are_shut_down_and_then_the_original(tmp_path):
    """Fault 27"""
    life = Life()
    world = BatchWorld(PartnerWorld([life, Life()]), 3)
    world.shutdown()
    world.shutdown()
    assert life.asked == {"copy shutdown": 3, "shutdown": 1}
    save = partial(world.save, tmp_path)
    for call in (world.parley, world.reset, world.reset_metrics, save):
        with pytest.raises(ClosedError):
            call()


def test_questions():
    """Fault 16"""
    teacher = CountingTeacher(10)
    world = BatchWorld(PartnerWorld([teacher, Repeater()]), 2)
    assert world.participants[0] is teacher
    assert (world.num_episodes, world.name) == (10, "teacher")
    assert world.indices() == {"teacher": teacher.indices()["teacher"]}
    assert world.acts == [[{}, {}], [{}, {}]]
    assert world.display().strip() == ""
    world.parley()
    assert len(world.display().splitlines()) == 4
    with pytest.raises(NotImplementedError, match="rows"):
        _ = world.episode_done


def test_the_original_is_saved(tmp_path):
    """Fault 24"""
    life = Life()
    BatchWorld(PartnerWorld([life, Life()]), 3).save(tmp_path)
    assert life.asked == {f"save {tmp_path}": 1}


def test_metrics_may_be_reset():
    world = BatchWorld(counting_world(10), 2)
    world.parley()
    world.reset_metrics()
    report = world.report()
    assert "correct" not in report
    assert values(report) == {"episodes": 2, "steps": 2}


def test_a_batch_is_nobodys_row():
    world = BatchWorld(counting_world(3), 2)
    for misuse in (lambda: BatchWorld(world, 2), lambda: world.share(0), world.play):
        with pytest.raises(TypeError):
            misuse()
    with pytest.raises(ValueError, match="batch_size"):
        BatchWorld(counting_world(3), 0)
