"""Clocks that go back between two lives of a task."""

import time

import pytest
from run_under_test import running

from distrl.cluster.spec import ClusterSpec
from distrl.lifecycle.beat import JOINED
from distrl.lifecycle.run_state import LOST
from distrl.lifecycle.settings import Run
from distrl.lifecycle.signals import Signals
from distrl.lifecycle.task import Task

HOUR_NS = 3600 * 10**9


@pytest.fixture
def make_task(tmp_path):
    cluster = ClusterSpec(("h:1",), ("h:2",), ("h:3",), num_actors=1)

    def make(**arguments):
        return Task("actor", 0, cluster, Run(), tmp_path, {}, Signals(), **arguments)

    return make


def test_an_incarnation_is_a_time_unless_it_is_given(make_task, monkeypatch):
    first = make_task()
    assert abs(first.producer.incarnation - time.time_ns()) < HOUR_NS
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now - HOUR_NS)
    assert make_task(restart=1).producer.incarnation < first.producer.incarnation
    given = first.producer.incarnation + 1
    assert make_task(restart=1, incarnation=given).producer.incarnation == given


def test_a_task_whose_incarnation_was_given_takes_the_place_of_a_lost_one(make_task):
    incarnations = [make_task().producer.incarnation]
    incarnations.append(make_task(incarnation=incarnations[0] + 1).producer.incarnation)
    run = running(also="actor/1")
    run.beat("actor/0", incarnations[0])
    run.live(16.0, ("ps/0", "memory/0", "learner/0"))
    assert run.state.members["actor/0"].state == LOST
    run.beat("actor/0", incarnations[1] - HOUR_NS)  # what the clock would say
    assert run.state.members["actor/0"].state == LOST
    run.beat("actor/0", incarnations[1])
    assert run.state.members["actor/0"].state == JOINED
