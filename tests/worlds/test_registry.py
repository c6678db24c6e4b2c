"""Worlds by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from examples import BatchRepeater, CountingTeacher, Repeater, play_epoch

from distrl.core.errors import ConfigError
from distrl.worlds import registry
from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.hogwild_world import HogwildWorld
from distrl.worlds.multi_world import MultiWorld
from distrl.worlds.parallel_world import ParallelWorld
from distrl.worlds.participant import ScriptedParticipant
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.pettingzoo_world import PettingZooWorld
from distrl.worlds.random_participant import RandomParticipant
from distrl.worlds.reducers import values
from distrl.worlds.registry import create_task, create_world, register_task

pytestmark = pytest.mark.timeout(60)


def make_counting(variant, participants, index):
    """The variant is the number of steps."""
    teacher = CountingTeacher(index.settings.size, steps=int(variant or 1))
    return PartnerWorld([teacher, *participants])


@pytest.fixture
def counting(monkeypatch) -> Iterator[None]:
    """Makes a task "counting" known, for one test."""
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))
    register_task("counting", make_counting)
    register_task("other", make_counting)


def one():
    return [BatchRepeater()]


def two():
    return [RandomParticipant(9, seed) for seed in range(2)]


def three():
    return [RandomParticipant(3, seed) for seed in range(2)]


# One task.


def test_a_task_of_its_own(counting):
    world = create_world("counting:3", one, num_episodes=4)
    assert type(world) is PartnerWorld
    assert play_epoch(world, 12) == 12
    assert create_world("counting", one, 4).parley()
    assert create_world("counting:", one, 4).parley()  # fault 26


@pytest.mark.parametrize("name", ["gymnasium", "", "a:b", "a,b"])
def test_names_that_cannot_be(name):
    with pytest.raises(ValueError, match=f"got {name!r}"):
        register_task(name, make_counting)


@pytest.mark.parametrize("task", ["", " , ,"])
def test_no_task(task):
    with pytest.raises(ConfigError, match="No task specified"):
        create_world(task, one)


@pytest.mark.parametrize(
    "task, text",
    [
        ("unknown", "'unknown': nobody knows it"),
        ("gymnasium:CartPole-v1,unknown:x", "'unknown:x': nobody knows it"),
        ("gymnasium:NoSuch-v0", "Gymnasium does not know 'NoSuch-v0'"),
        ("gymnasium", "Gymnasium does not know ''"),
        ("pettingzoo:no.such_game", "no"),
        ("pettingzoo:classic", "no game"),
        ("pettingzoo", "pettingzoo"),
    ],
)
def test_tasks_that_nobody_knows(task, text):
    """Fault 26"""
    with pytest.raises(ConfigError, match=text):
        create_world(task, one, 3)


def test_unknown_tasks_are_told_before_anything_is_made():
    def never():
        raise OverflowError("made")

    with pytest.raises(ConfigError):
        create_world("gymnasium:CartPole-v1,unknown", never, num_workers=2)


def test_errors_of_a_task_come_through(monkeypatch):
    """Fault 26: they are not taken for an unknown task."""

    def broken(variant, participants, index):
        raise ImportError("its own")

    monkeypatch.setattr(registry, "_tasks", {"broken": broken})
    with pytest.raises(ImportError, match="its own"):
        create_world("broken", one)


def test_gymnasium():
    player = ScriptedParticipant([{"action": 0}])
    with create_world("gymnasium:CartPole-v1", lambda: [player], 2) as world:
        assert (world.name, world.num_episodes) == ("CartPole-v1", 2)
        assert play_epoch(world, 40) > 10
        assert 5 < values(world.report())["returns"] < 20


def test_pettingzoo():
    with create_world("pettingzoo:classic.tictactoe_v3", two, 3) as world:
        assert type(world) is PettingZooWorld
        play_epoch(world, 27)
        assert world.episodes == 3
    with create_world("pettingzoo:classic.rps_v2", three, 1) as world:
        assert type(world) is ParallelWorld


def test_create_task():
    index = ExampleIndex(3)
    world = create_task("gymnasium:CartPole-v1", [Repeater()], index)
    assert world.indices() == {"CartPole-v1": index}


# Mixtures, batches and workers.


def test_a_mixture(counting):
    """Fault 22: blanks are no tasks."""
    world = create_world(" counting:2, ,other,", one, num_episodes=3, batch_size=1)
    assert isinstance(world, MultiWorld)
    assert [part.name for part in world.worlds] == ["counting:2", "other"]
    assert [part.participants[1].id for part in world.worlds] == ["BatchRepeater"] * 2
    assert play_epoch(world, 9) == 9
    assert values(world.report())["counting:2/episodes"] == 3


@pytest.mark.parametrize("setting", [{"weights": [1]}, {"choose": lambda *_: 0}])
def test_one_task_is_no_mixture(counting, setting):
    with pytest.raises(ConfigError, match="one task, counting"):
        create_world("counting", one, **setting)


@pytest.mark.parametrize("number", [0, -3])
def test_numbers_out_of_range(counting, number):
    for workers in (0, 1):
        with pytest.raises(ValueError, match=f"batch_size .*got {number}"):
            create_world("counting", one, 3, workers, batch_size=number)
    with pytest.raises(ValueError, match="num_workers .*got -1"):
        create_world("counting", one, 3, num_workers=-1)


def test_participants_are_made(counting):
    with pytest.raises(TypeError, match=r"make_participants: .*got \[<"):
        create_world("counting", one())


def test_settings_of_a_mixture(counting):
    def names(**kwargs):
        world = create_world("counting,other", one, 20, **kwargs)
        return [world.parley() and world.world.name for _ in range(20)]

    assert names(weights=[0, 1]) == ["other"] * 20
    assert names(choose=lambda *_: 0) == ["counting"] * 20
    assert names(weights=[1, 1], seed=1) != names(weights=[1, 1], seed=2)
    with pytest.raises(ValueError, match="weights"):
        names(weights=[1])


def test_batches(counting):
    world = create_world("counting,other", one, 20, batch_size=8)
    assert isinstance(world, BatchWorld)
    play_epoch(world, 40)
    assert world.episodes == 40


def test_the_same_task_twice(counting):
    with pytest.raises(ValueError, match="different names"):
        create_world("counting,counting", one, 3)


def test_workers_know_what_was_registered_here(counting):
    with create_world("counting,other", one, 5, num_workers=1, batch_size=2) as world:
        assert isinstance(world, HogwildWorld)
        play_epoch(world, 10)
        assert values(world.report())["correct"] == 1
        assert world.episodes == 10
