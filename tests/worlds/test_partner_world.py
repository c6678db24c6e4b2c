"""Two participants in turn, and what all worlds have in common."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from types import MappingProxyType

import pytest
from examples import (
    CountingTeacher,
    Life,
    Repeater,
    Speaker,
    counting_world,
    each_once,
    play_epoch,
    played,
)

from distrl.worlds.errors import ClosedError
from distrl.worlds.participant import Participant, ScriptedParticipant
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.reducers import Ratio, Series, Sum, values
from distrl.worlds.world import World

pytestmark = pytest.mark.timeout(20)


class Measuring(ScriptedParticipant):
    """Has given metrics."""

    def __init__(self, **metrics):
        super().__init__([{"action": 0}])
        self.metrics.update(metrics)


# Turns.


def test_the_order_of_a_parley():
    """W-1"""
    events: list[str] = []
    world = PartnerWorld([Speaker("A", events), Speaker("B", events)])
    for number in (1, 2):
        events.clear()
        assert world.parley()
        assert events == [
            "A acts",
            f"B observes A {number}",
            "B acts",
            f"A observes B {number}",
        ]


@pytest.mark.parametrize("number", [1, 3])
def test_there_must_be_two(number):
    """W-1"""
    with pytest.raises(RuntimeError, match="exactly two agents for this world"):
        PartnerWorld([Speaker(str(n)) for n in range(number)])


def test_a_world_needs_somebody():
    with pytest.raises(ValueError, match="participants"):
        World([])


@pytest.mark.parametrize("act", [None, [1], "hello"], ids=str)
@pytest.mark.parametrize("seat", [0, 1])
def test_an_act_is_a_mapping(act, seat):
    """W-2"""
    participants = [Speaker("A"), Speaker("B")]
    participants[seat] = ScriptedParticipant([act])
    with pytest.raises(RuntimeError, match=r"Must return dictionary from act\(\)."):
        PartnerWorld(participants).parley()


@pytest.mark.parametrize("kind", [dict, OrderedDict, MappingProxyType])
def test_any_mapping_will_do(kind):
    """W-2, fault 25"""
    listener = Speaker("B")
    world = PartnerWorld([ScriptedParticipant([kind({"action": 3})]), listener])
    assert world.parley()
    assert listener.heard[0]["action"] == 3


def test_a_message_says_who_sent_it():
    """Fault 20: the seat is the world's to say, the name the sender's."""
    liar = ScriptedParticipant([{"action": 1, "id": "king", "seat": 7}], "liar")
    quiet, listener = ScriptedParticipant([{"action": 1}], "quiet"), Speaker("B")
    PartnerWorld([liar, listener]).parley()
    PartnerWorld([quiet, listener]).parley()
    senders = [(message["id"], message["seat"]) for message in listener.heard]
    assert senders == [("king", 0), ("quiet", 0)]


# Ends.


def test_participant_0_ends_an_episode():
    """W-3"""
    done, more = {"episode_done": True}, {"episode_done": False}
    world = PartnerWorld(
        [ScriptedParticipant([more, done, {}]), ScriptedParticipant([done])]
    )
    assert not world.episode_done
    seen = []
    for _ in range(3):
        world.parley()
        seen.append((world.episode_done, world.episodes))
    assert seen == [(False, 0), (True, 1), (False, 1)]


def test_a_reset_forgets_the_acts():
    """W-3, fault 15"""
    world = PartnerWorld([ScriptedParticipant([{"episode_done": True}]), Speaker("B")])
    world.parley()
    assert world.episode_done
    world.reset()
    assert not world.episode_done
    assert (world.acts, world.steps, world.episodes) == ([{}, {}], 0, 0)


def test_participant_0_ends_the_epoch():
    world = counting_world(3, steps=2)
    for parley in range(6):
        assert not world.epoch_done, parley
        assert world.parley()
    assert world.epoch_done
    world = PartnerWorld([Repeater(), CountingTeacher(1)])
    assert not world.epoch_done  # of participant 1, nobody asks it


def test_a_parley_past_the_end_is_refused_at_once():
    """W-10"""
    world = counting_world(2)
    play_epoch(world, 2)
    before = world.report()
    assert [world.parley() for _ in range(3)] == [False] * 3
    assert world.report() == before


@pytest.mark.parametrize("order", ["ordered", "random"])
def test_an_epoch_has_each_example_once(order):
    """W-5, W-6 for one row"""
    world = counting_world(17, order)
    for _ in range(2):
        assert play_epoch(world, 17) == 17
        assert played(world.report()) == each_once(17)
        assert (world.episodes, world.epochs) == (17, 1.0)
        world.reset()
        assert played(world.report()) == {}


def test_a_reset_amid_an_episode():
    world = counting_world(3, steps=4)
    for _ in range(6):
        world.parley()
    world.reset()
    assert play_epoch(world, 12) == 12
    assert played(world.report()) == each_once(3)


def test_training_goes_on_and_on():
    world = counting_world(3, repeats=True)
    for _ in range(10):
        assert world.parley()
    assert (world.episodes, world.epochs) == (10, 10 / 3)
    assert not world.epoch_done


def test_a_world_of_unknown_size():
    """Fault 13"""
    world = counting_world(None)
    assert world.parley()
    assert (world.num_episodes, world.epochs, world.episodes) == (None, None, 1)


# Reports.


def test_counts_are_of_work():
    """W-20, fault 14: reports and resets of metrics change nothing."""
    world = counting_world(None)
    for number in range(1, 6):
        world.parley()
        for _ in range(3):
            report = values(world.report())
            assert (report["episodes"], report["correct"]) == (number, 1.0)
    world.reset_metrics()
    assert "correct" not in world.report()
    assert (world.episodes, world.steps) == (5, 5)


def test_steps_are_parleys():
    world = counting_world(5, steps=3)
    for _ in range(7):
        world.parley()
    assert (world.steps, world.episodes) == (7, 2)


def test_an_evaluation_may_be_cut():
    """W-20: validation_max_exs"""
    world = counting_world(100, steps=2)
    while world.episodes < 10 and world.parley():
        pass
    assert values(world.report())["episodes"] == 10


def test_the_first_one_with_a_metric_counts():
    """W-4"""
    first, second = Measuring(f1=Ratio(1, 2)), Measuring(f1=Ratio(1, 1), loss=Sum(3))
    report = values(PartnerWorld([first, second]).report())
    assert report == {"f1": 0.5, "loss": 3, "episodes": 0, "steps": 0}


def test_some_metrics_only():
    """W-4"""
    participants = [Measuring(f1=Ratio(1, 2), loss=Sum(1)), Measuring(accuracy=Sum(1))]
    world = PartnerWorld(participants, metrics=["f1"])
    assert set(world.report()) == {"f1", "episodes", "steps"}


def test_what_a_world_measures_itself():
    class Measured(PartnerWorld):
        def measured(self):
            return {"mine": Sum(2), "f1": Sum(1)}

    assert Measured([Measuring(f1=Sum(7)), Measuring()]).report()["f1"] == Sum(1)
    shown = Measured([Measuring(), Measuring()], metrics=["mine"]).report()
    assert set(shown) == {"mine", "episodes", "steps"}


def test_two_indices_of_the_same_name():
    world = PartnerWorld([CountingTeacher(1), CountingTeacher(2)])
    with pytest.raises(ValueError, match="teacher"):
        world.indices()
    one = CountingTeacher(1)
    assert set(PartnerWorld([one, one]).indices()) == {"teacher"}


# The order of a world's life.


def test_shutdown_ends_all_once():
    """Fault 27"""
    lives = [Life(), Life()]
    with PartnerWorld(lives) as world:
        world.parley()
    world.shutdown()
    assert [life.asked for life in lives] == [{"shutdown": 1}] * 2


@pytest.mark.parametrize("call", ["parley", "reset", "reset_metrics", "save"])
def test_a_closed_world_is_not_played(call, tmp_path):
    """Fault 6"""
    life = Life()
    world = PartnerWorld([life, Life()], "dull")
    world.shutdown()
    with pytest.raises(ClosedError, match="dull"):
        getattr(world, call)(*[tmp_path] * (call == "save"))
    assert life.asked == {"shutdown": 1}


def test_a_world_needs_participants():
    for nobody in (Life, None, {"action": 1}):
        with pytest.raises(TypeError, match="expected participants, got"):
            PartnerWorld([Life(), nobody])


def test_shutdown_asks_everyone_whatever_they_say():
    class Stubborn(Life):
        def shutdown(self):
            raise OSError("no")

    last = Life()
    world = PartnerWorld([Stubborn(), last])
    with pytest.raises(OSError, match="no"):
        world.shutdown()
    assert last.asked["shutdown"] == 1


def test_errors_pass_through_a_with():
    life = Life()
    with pytest.raises(KeyError, match="lost"), PartnerWorld([life, life]):
        raise KeyError("lost")
    assert life.asked["shutdown"] >= 1


def test_every_participant_is_asked_to_save(tmp_path):
    """Fault 24"""
    lives = [Life(), Life()]
    PartnerWorld(lives).save(tmp_path)
    PartnerWorld([Participant(), Participant()]).save(tmp_path)
    assert [life.asked[f"save {tmp_path}"] for life in lives] == [1, 1]


def test_a_world_is_not_kept():
    """Fault 12: no cache keeps it."""
    world = counting_world(3)
    play_epoch(world, 3)
    assert world.num_episodes == 3
    gone = weakref.ref(world)
    del world
    gc.collect()
    assert gone() is None


def test_a_copy_has_an_episode_of_its_own():
    world = counting_world(5, steps=2)
    copy = world.share(0)
    world.parley()
    copy.parley()
    assert (world.acts[0]["observation"], copy.acts[0]["observation"]) == (0, 1)
    copy.parley()
    assert (world.episode_done, copy.episode_done) == (False, True)
    assert (world.episodes, copy.episodes) == (0, 1)
    assert played(world.report()) == played(copy.report()) == {1: 1}


def test_a_copy_keeps_who_sits_in_several_seats():
    """Fault 18"""
    one = Speaker("A")
    copy = PartnerWorld([one, one]).share(0)
    assert copy.participants[0] is copy.participants[1] is not one


def test_display():
    """Fault 16: acts are there from the beginning."""
    world = PartnerWorld([Speaker("A"), Speaker("B")])
    assert (world.acts, world.display()) == ([{}, {}], "")
    world.parley()
    lines = world.display().splitlines()
    assert lines[0] == "[A in seat 0] {'action': 'A 1'}"
    assert lines[1] == "[B in seat 1] {'action': 'B 1'}"


def test_an_error_of_a_participant_comes_through():
    class Failing(Repeater):
        def act(self):
            raise OverflowError("too much")

    world = counting_world(3, student=Failing())
    with pytest.raises(OverflowError, match="too much"):
        world.parley()
    assert (world.steps, world.episodes) == (0, 0)


def test_series_by_episode():
    world = PartnerWorld([Measuring(x=Series(((4, 1.0), (2, 2.0)))), Measuring()])
    assert values(world.report())["x"] == 1.5
