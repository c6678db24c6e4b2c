"""Limits of a run: what they compute, and what they refuse."""

import pytest

from distrl.core.errors import ConfigError
from distrl.lifecycle.settings import Run, StopConditions, Timeouts


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        (StopConditions, "max_env_steps", 0),
        (StopConditions, "max_learner_steps", -5),
        (StopConditions, "max_seconds", 0.0),
        (Timeouts, "startup_secs", 0.0),
        (Timeouts, "heartbeat_secs", -1.0),
        (Timeouts, "heartbeat_secs", 2.9),
        (Timeouts, "stall_secs", 0.0),
        (Timeouts, "shutdown_secs", 0.0),
        (Timeouts, "beat_period_secs", 0.0),
        (Run, "seed", -1),
    ],
)
def test_a_bad_value_is_refused_by_name(settings, key, value):
    with pytest.raises(ConfigError, match=f"{settings.__name__}.{key}.*{value}"):
        settings(**{key: value})


def test_the_fraction_is_that_of_the_nearest_limit():
    conditions = StopConditions(max_env_steps=100, max_learner_steps=10)
    assert conditions.fraction(50, 2, 1e9) == 0.5
    assert conditions.fraction(50, 8, 0) == 0.8
    assert conditions.fraction(500, 0, 0) == 1.0
    assert StopConditions(target_return=5.0).fraction(1e9, 1e9, 1e9) == 0.0


def test_the_goal_names_what_is_set():
    assert StopConditions().goal == ""
    goal = StopConditions(max_env_steps=100, target_return=9.5).goal
    assert goal == "max_env_steps=100, target_return=9.5"


def test_many_tasks_beat_more_rarely_and_are_given_more_time():
    timeouts = Timeouts(beat_period_secs=1.0, heartbeat_secs=15.0)
    assert timeouts.beat_secs(5) == 1.0 and timeouts.silence_secs(5) == 15.0
    assert timeouts.beat_secs(5, fast=True) == 0.1
    for number in (10, 100, 1000):
        for fast in (False, True):  # at most a fifth of a core at 3 ms a beat
            assert number * 0.003 / timeouts.beat_secs(number, fast) <= 0.2 + 1e-9
        assert timeouts.silence_secs(number) >= 5 * timeouts.beat_secs(number)
