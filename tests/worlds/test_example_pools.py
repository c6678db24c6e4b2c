"""ExamplePools and HogwildWorker: what is lent, given back, and played."""

from collections import Counter

import pytest
from examples import CountingTeacher, Repeater, counting_world, each_once, played

from distrl.worlds.example_index import IndexSettings
from distrl.worlds.example_pools import ExamplePools
from distrl.worlds.hogwild_worker import HogwildWorker
from distrl.worlds.multi_world import MultiWorld
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.reducers import merged, values


def pools(size=10, **kwargs):
    return ExamplePools({"a": IndexSettings(size, **kwargs)})


def test_near_the_end_everybody_gets_a_share():
    lending = pools(10)
    lent = [lending.lend({}, most=4, among=2)["a"] for _ in range(5)]
    assert lent == [[0, 1, 2, 3], [4, 5, 6], [7, 8], [9], []]
    assert not lending.available
    lending.reset()
    assert lending.lend({}, 4, 2) == {"a": [0, 1, 2, 3]}


@pytest.mark.parametrize("settings", [{"size": None}, {"size": 3, "repeats": True}])
def test_where_there_is_no_end_there_are_no_shares(settings):
    lending = pools(**settings)
    for _ in range(5):
        assert len(lending.lend({}, 7, 100)["a"]) == 7
    assert lending.available


def test_what_was_not_begun_is_lent_first():
    lending = pools(10)
    assert lending.lend({}, 4, 1) == {"a": [0, 1, 2, 3]}
    lending.settle({"a": [2, 3]}, {"a": [0]})
    assert lending.lend({"a": Counter([1])}, 4, 1) == {"a": [2, 3, 4, 5]}


def test_suspects_are_lent_alone_and_given_up_the_second_time():
    lending = ExamplePools({"a": IndexSettings(4), "b": IndexSettings(9)})
    assert lending.lend({}, 4, 1) == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}
    lending.fail({"a": Counter([1, 2])})
    assert lending.lost == {}
    busy = {"b": Counter([0])}
    assert lending.lend(busy, 2, 1) == {"a": [], "b": [4, 5]}  # no suspects
    assert lending.lend({"b": Counter()}, 2, 1) == {"a": [1]}
    assert lending.lend({"a": Counter([1])}, 2, 1) == {}  # nothing beside one
    lending.fail({"a": Counter([1])})
    assert lending.lost == {"a": [1]}
    assert lending.lend({}, 2, 1) == {"a": [2]}
    lending.settle({"a": [2]}, {})
    assert lending.lend({}, 2, 1) == {"a": [2]}  # it remains one
    lending.settle({}, {"a": [2]})
    assert lending.lend({}, 2, 1) == {"a": [], "b": [6, 7]}
    lending.reset()
    assert lending.lost == {}
    assert lending.lend({}, 1, 1) == {"a": [0], "b": [0]}


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_worker_plays_what_it_is_lent_and_nothing_else(batch_size):
    worker = HogwildWorker(lambda n: counting_world(9, steps=2), 0, batch_size)
    assert worker.describe().indices == {"teacher": IndexSettings(9)}
    assert worker.play(False, {}, 5).parleys == 0
    first = worker.play(False, {"teacher": [7, 3, 5, 1]}, 1)
    unused = [7, 3, 5, 1][batch_size:]
    assert (first.parleys, first.busy, first.unused) == (1, True, {"teacher": unused})
    assert values(first.report) == {"episodes": 0, "steps": batch_size}
    rest = worker.play(False, {"teacher": unused}, 100)
    assert (rest.busy, rest.unused) == (False, {"teacher": []})
    assert sorted(rest.finished["teacher"]) == [1, 3, 5, 7]
    assert played(rest.report) == dict.fromkeys([1, 3, 5, 7], 1)
    total = values(merged([first.report, rest.report]))
    assert (total["episodes"], total["steps"], total["correct"]) == (4, 8, 1.0)
    assert values(rest.counts) == {"episodes": 4, "steps": 8 - batch_size}


def test_a_new_epoch_begins_with_a_reset():
    worker = HogwildWorker(lambda n: counting_world(4, steps=2), 0, 2)
    assert worker.play(False, {"teacher": [0, 1]}, 1).busy
    again = worker.play(True, {"teacher": [0, 1, 2, 3]}, 100)
    assert played(again.report) == each_once(4)
    assert values(again.counts) == {"episodes": 4, "steps": 8}


def test_an_index_that_two_worlds_share_is_lent_from_once():
    first, second = CountingTeacher(6, name="a"), CountingTeacher(6, name="b")
    second._index = first._index
    worlds = [PartnerWorld([teacher, Repeater()]) for teacher in (first, second)]
    worker = HogwildWorker(lambda n: MultiWorld(worlds), 0, 1)
    assert set(worker.describe().indices) == {"a/a"}
    report = worker.play(False, {"a/a": [0, 1, 2, 3, 4, 5]}, 100).report
    assert played(report) == each_once(6)
    assert values(report)["a/episodes"] == values(report)["b/episodes"] == 3
