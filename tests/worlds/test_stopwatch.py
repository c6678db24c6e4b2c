"""Time that may be stopped."""

from __future__ import annotations

import pytest

from distrl.worlds import stopwatch
from distrl.worlds.stopwatch import Stopwatch


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(stopwatch, "time", clock)
    return clock


def test_it_runs_from_the_beginning(clock):
    """W-15: the older one reads more."""
    older = Stopwatch()
    clock.now += 2
    younger = Stopwatch()
    clock.now += 1
    assert (older.seconds, younger.seconds) == (3, 1)
    assert older.running


def test_stop_and_resume(clock):
    """W-15"""
    watch = Stopwatch()
    clock.now += 2
    assert watch.stop() == 2
    clock.now += 5
    assert (watch.seconds, watch.running) == (2, False)
    assert watch.stop() == 2
    watch.resume()
    assert watch.seconds == 2
    clock.now += 3
    assert (watch.seconds, watch.stop()) == (5, 5)


def test_to_resume_what_runs_changes_nothing(clock):
    watch = Stopwatch()
    clock.now += 2
    watch.resume()
    clock.now += 1
    assert watch.seconds == 3


@pytest.mark.parametrize("stopped", [False, True])
def test_reset(clock, stopped):
    watch = Stopwatch()
    clock.now += 2
    if stopped:
        watch.stop()
    watch.reset()
    clock.now += 1
    assert (watch.seconds, watch.running) == (1, True)


def test_it_takes_real_time():
    watch = Stopwatch()
    while not watch.seconds:
        pass
    assert 0 < watch.stop() < 60
