"""Mixtures of tasks."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import pytest
from examples import (
    BatchRepeater,
    CountingTeacher,
    Life,
    Repeater,
    counting_world,
    each_once,
    parleys,
    play_epoch,
    played,
)

from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.errors import ClosedError
from distrl.worlds.multi_world import MultiWorld
from distrl.worlds.participant import ScriptedParticipant
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.reducers import Ratio, Sum, values

pytestmark = pytest.mark.timeout(30)


def tasks(*sizes, student=None, **kwargs):
    """Counting worlds of these sizes, named task0 and so on, with one student."""
    student = student or Repeater()
    return [
        counting_world(size, name=f"task{n}", student=student, **kwargs)
        for n, size in enumerate(sizes)
    ]


def shown(world):
    """The world, and what its teacher asks."""
    return world.world.name, world.acts[0]["observation"]


# In turn.


def test_worlds_take_turns():
    """W-17"""
    world = MultiWorld(tasks(3, 2, 1))
    seen = parleys(world, 6, lambda: world.world.name[-1])
    assert seen == list("012010")
    assert not world.parley()
    assert (world.epoch_done, world.episodes, world.epochs) == (True, 6, 1.0)


def test_worlds_made_alike_do_alike():
    """W-17"""
    one, other = (MultiWorld(tasks(3, 5, steps=2)) for _ in range(2))
    for _ in range(16):
        assert not one.epoch_done
        assert one.parley() and other.parley()
        assert one.acts == other.acts
    assert one.epoch_done and other.epoch_done


def test_the_world_changes_between_episodes_only():
    world = MultiWorld(tasks(2, 2, steps=3))
    seen = parleys(world, 12, lambda: world.world.name[-1])
    assert seen == list("000111000111")


def test_a_reset_begins_with_the_first_world():
    """Fault 15"""
    world = MultiWorld(tasks(3, 3))
    first = parleys(world, 4, lambda: shown(world))
    world.reset()
    assert not world.episode_done
    assert (world.steps, world.episodes, world.epochs) == (0, 0, 0.0)
    assert world.world.name == "task0"
    assert parleys(world, 4, lambda: shown(world)) == first


@pytest.mark.parametrize("weights", [None, [1000, 1]], ids=str)
def test_a_world_that_finds_nothing_is_passed_over(weights):
    """It did not know before it looked."""

    class Surprised(Life):
        def claim(self):
            return False

    nothing = PartnerWorld([Surprised("nothing"), Life()])
    world = MultiWorld([nothing, counting_world(2)], weights)
    assert parleys(world, 2, lambda: world.world.name) == ["teacher"] * 2
    assert not world.parley()


def test_sizes_are_added_up():
    assert MultiWorld(tasks(3, 2)).num_episodes == 5
    endless = MultiWorld(tasks(3, None))
    assert (endless.num_episodes, endless.epochs) == (None, None)


def test_before_the_first_parley():
    """Fault 16"""
    world = MultiWorld(tasks(3, 2))
    assert world.acts == [{}, {}]
    assert not world.episode_done and not world.epoch_done
    assert world.participants == world.worlds[0].participants


# By chance.


@pytest.mark.parametrize("steps", [1, 2])
def test_every_example_once_by_chance(steps):
    """W-6 for one row, fault 23: finished worlds are passed over."""
    world = MultiWorld(tasks(17, 5, steps=steps), weights=[1, 100], seed=3)
    orders = []
    for _ in range(2):
        names = []
        for _ in range(22 * steps):
            assert world.parley()
            names.append(world.world.name)
        assert not world.parley()
        assert values(world.report())["correct"] == 1
        assert [played(w.report()) for w in world.worlds] == [
            each_once(17),
            each_once(5),
        ]
        orders.append(names)
        world.reset()
    assert orders[0] == orders[1]  # the same epoch anew


def mixture(weights, **kwargs):
    """100 episodes of two steps and 10 of one, in training."""
    student = Repeater()
    return MultiWorld(
        [
            counting_world(100, "random", True, 2, name="long", student=student),
            counting_world(10, "random", True, name="short", student=student),
        ],
        weights,
        **kwargs,
    )


@pytest.mark.parametrize(
    "weights, low, high", [([1, 1], 1.7, 2.3), ("stochastic", 18, 45)]
)
def test_weights_are_of_episodes(weights, low, high):
    """W-16"""
    world = mixture(weights)
    for _ in range(1000):
        assert world.parley()
    report = values(world.report())
    assert report["steps"] == 1000
    assert low < report["long/steps"] / report["short/steps"] < high


def test_weights():
    """W-16"""
    world = MultiWorld(tasks(5, 5, 5, repeats=True), weights=[3, 1, 1])
    seen = Counter(parleys(world, 5000, lambda: world.world.name))
    for name, share in {"task0": 0.6, "task1": 0.2, "task2": 0.2}.items():
        assert abs(seen[name] / 5000 - share) < 0.03


def test_a_weight_of_zero_comes_last():
    world = MultiWorld(tasks(3, 3), weights=[0, 1])
    seen = parleys(world, 6, lambda: world.world.name[-1])
    assert seen == list("111000")


def test_the_seed_decides():
    def names(seed):
        world = mixture([1, 1], seed=seed)
        return parleys(world, 50, lambda: world.world.name)

    assert names(1) == names(1) != names(2)


@pytest.mark.parametrize(
    "weights",
    [[1], [1, 1, 1], [0, 0], [1, -1], [1, math.nan], [1, math.inf], "uniform", []],
    ids=str,
)
def test_weights_that_are_none(weights):
    """Fault 23"""
    with pytest.raises(ValueError, match="weights"):
        MultiWorld(tasks(3, 3), weights)


def test_stochastic_needs_sizes():
    with pytest.raises(ValueError, match="task1"):
        MultiWorld(tasks(3, None), "stochastic")


def test_a_curriculum():
    """The harder task comes once two episodes of the other were played."""
    asked = []

    def choose(random, worlds, playable):
        asked.append(list(playable))
        return 1 if worlds[0].episodes >= 2 and 1 in playable else 0

    world = MultiWorld(tasks(4, 2), choose=choose)
    seen = parleys(world, 6, lambda: world.world.name[-1])
    assert seen == list("001100")
    assert asked == [[0, 1]] * 4 + [[0]] * 2


def test_a_curriculum_that_chooses_what_is_over():
    world = MultiWorld(tasks(1, 2), choose=lambda *_: 0)
    world.parley()
    with pytest.raises(ValueError, match=r"chose world 0, expected one of \[1\]"):
        world.parley()


def test_arguments():
    with pytest.raises(ValueError, match="different names"):
        MultiWorld([])
    with pytest.raises(ValueError, match="different names"):
        MultiWorld([counting_world(1), counting_world(1)])
    with pytest.raises(ValueError, match="not both"):
        MultiWorld(tasks(1, 1), [1, 1], lambda *_: 0)


# Reports.


class Scored(ScriptedParticipant):
    """Ends an episode with each act, and has right what it was told to."""

    def __init__(self, right, of, name):
        super().__init__([{"episode_done": True}], name)
        self.metrics.add("accuracy", Ratio(right, of))


def test_two_ways_to_average():
    """W-19: task b has four times as many as task a."""
    student = Repeater()
    a, b = 3 / 10, 36 / 40
    worlds = [
        PartnerWorld([Scored(3, 10, "a"), student]),
        PartnerWorld([Scored(36, 40, "b"), student]),
    ]
    world = MultiWorld(worlds)
    report = values(world.report())
    assert report["accuracy"] == pytest.approx((a + 4 * b) / 5, abs=1e-4)
    macro = world.macro_report()
    assert macro["accuracy"] == pytest.approx((a + b) / 2, abs=1e-4)
    assert (report["a/accuracy"], report["b/accuracy"]) == (a, b)


def test_counts_of_each_world():
    world = MultiWorld(tasks(3, 2, steps=2))
    play_epoch(world, 10)
    for _ in range(2):  # fault 14
        counts = {n: v for n, v in values(world.report()).items() if "id/" not in n}
        assert counts == {
            "episodes": 5,
            "steps": 10,
            "correct": 1,
            "task0/episodes": 3,
            "task0/steps": 6,
            "task0/correct": 1,
            "task1/episodes": 2,
            "task1/steps": 4,
            "task1/correct": 1,
        }
    assert played(world.report()) == {0: 2, 1: 2, 2: 1}


def test_who_sits_in_all_worlds_is_counted_once():
    student = ScriptedParticipant([{"action": 0}])
    student.metrics.add("answers", Sum(7))
    report = values(MultiWorld(tasks(3, 3, student=student)).report())
    assert report["answers"] == 7
    assert "task0/answers" not in report


def test_a_world_reports_what_it_says_it_does():
    """Its own metrics, and those that it was told to."""

    class Measured(PartnerWorld):
        def measured(self):
            return {"mine": Sum(2)}

    worlds = [
        Measured([CountingTeacher(1, name="a"), Repeater()]),
        Measured([CountingTeacher(1, name="b"), Repeater()], metrics=["correct"]),
    ]
    world = MultiWorld(worlds)
    play_epoch(world, 2)
    report = values(world.report())
    assert (report["mine"], report["a/mine"]) == (2, 2)
    assert (report["id/0"], report["a/id/0"], report["correct"]) == (1, 1, 1)
    assert not {"b/mine", "b/id/0"} & set(report)


def test_the_first_one_of_a_world_counts():
    """W-4"""
    teacher, student = Scored(1, 1, "teacher"), Scored(0, 1, "student")
    report = MultiWorld([PartnerWorld([teacher, student])]).report()
    assert report["teacher/accuracy"] == report["accuracy"] == Ratio(1, 1)


def test_mixtures_of_mixtures():
    inner = MultiWorld(tasks(2, 3), name="inner")
    world = MultiWorld([inner, counting_world(2, name="outer")])
    play_epoch(world, 7)
    report = values(world.report())
    assert (report["episodes"], report["inner/episodes"]) == (7, 5)
    assert played(world.report()) == {0: 3, 1: 3, 2: 1}
    assert (report["inner/task0/correct"], report["outer/episodes"]) == (1, 2)
    assert set(world.indices()) == {
        "inner/task0/task0",
        "inner/task1/task1",
        "outer/outer",
    }


# The order of its life.


def test_all_worlds_are_shut_down(tmp_path):
    """Fault 22"""
    lives = [Life("a"), Life("b")]
    world = MultiWorld([PartnerWorld([life, Life()]) for life in lives])
    with world:
        world.parley()
    world.shutdown()
    assert [life.asked["shutdown"] for life in lives] == [1, 1]
    with pytest.raises(ClosedError):
        world.parley()
    for call in (world.reset, world.reset_metrics, partial(world.save, tmp_path)):
        with pytest.raises(ClosedError):
            call()


def test_all_worlds_are_saved_and_reset(tmp_path):
    """Fault 24"""
    lives = [Life("a"), Life("b")]
    world = MultiWorld([PartnerWorld([life, Life()]) for life in lives])
    world.save(tmp_path)
    world.reset()
    assert [life.asked for life in lives] == [
        {f"save {tmp_path / name}": 1, "reset": 1} for name in "ab"
    ]


def test_display_names_the_world():
    world = MultiWorld(tasks(1, 1))
    world.parley()
    world.parley()
    assert world.display().splitlines()[0] == "[task1]"


# In a batch.


@pytest.mark.parametrize("batch_size", [1, 3, 8, 64])
@pytest.mark.parametrize("weights", [None, [1, 4], "stochastic"], ids=str)
def test_every_example_once_in_a_batch(batch_size, weights):
    """W-22: N + 4N."""
    student = BatchRepeater()
    mixed = MultiWorld(tasks(10, 40, student=student), weights)
    world = BatchWorld(mixed, batch_size)
    for _ in range(2):
        play_epoch(world, 50)
        report = world.report()
        assert (world.episodes, values(report)["correct"]) == (50, 1)
        assert played({n[6:]: r for n, r in report.items() if n[:6] == "task0/"}) == (
            each_once(10)
        )
        assert played({n[6:]: r for n, r in report.items() if n[:6] == "task1/"}) == (
            each_once(40)
        )
        world.reset()


@pytest.mark.parametrize("weights", [None, [1, 1]], ids=str)
def test_a_stream_beside_a_short_task(weights):
    """W-18"""
    student = BatchRepeater()
    stream = counting_world(None, name="stream", student=student)
    short = counting_world(3, repeats=True, name="short", student=student)
    world = BatchWorld(MultiWorld([stream, short], weights), 16)
    counts = []
    for _ in range(100):
        assert world.parley()
        assert all(act for row in world.acts for act in row)
        report = values(world.report())
        counts.append((report["stream/episodes"], report["short/episodes"]))
    for before, after in zip(counts, counts[10:], strict=False):
        assert after[0] > before[0] and after[1] > before[1]


def test_rows_choose_for_themselves():
    world = BatchWorld(mixture([1, 1]), 8)
    world.parley()
    assert len({row.world.name for row in world.rows}) == 2
