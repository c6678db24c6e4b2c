"""How long a task waits before its next start, under a clock that the test turns."""

from __future__ import annotations

import pytest

from distrl.lifecycle.failure_policy import FailurePolicies
from launch import restarts
from launch.description import Task
from launch.restarts import Restarts


class Clock:
    """In place of the module `time`."""

    def __init__(self):
        self.now = 500.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(restarts, "time", made)
    return made


def task(job="actor", index=0):
    return Task(job, index, ("true",), {})


def test_short_lives_are_further_and_further_apart(clock):
    decides = Restarts(FailurePolicies())
    pauses = []
    for _ in range(9):
        clock.now += 5.0
        pauses.append(decides.pause_secs(task()))
        clock.now += pauses[-1]
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_long_life_begins_anew_and_tasks_do_not_wait_for_others(clock):
    decides = Restarts(FailurePolicies())
    for expected in (0.0, 1.0, 2.0):
        assert decides.pause_secs(task()) == expected
    assert decides.pause_secs(task(index=1)) == 0.0
    assert decides.pause_secs(task("memory")) == 0.0
    clock.now += 2.0 + 59.0  # it lived 59 s
    assert decides.pause_secs(task()) == 4.0
    clock.now += 4.0 + 61.0
    assert decides.pause_secs(task()) == 0.0
    clock.now += 5.0
    assert decides.pause_secs(task()) == 0.0  # the first short life
    clock.now += 5.0
    assert decides.pause_secs(task()) == 1.0
