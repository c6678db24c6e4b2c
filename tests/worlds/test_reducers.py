"""Metrics that are added up."""

from __future__ import annotations

import math
import pickle

import pytest

from distrl.worlds.reducers import (
    Metrics,
    Ratio,
    Series,
    Sum,
    macro_average,
    merged,
    values,
)


@pytest.mark.parametrize(
    "one, other, value",
    [
        (Sum(2), Sum(3), 5),
        (Sum(), Sum(1.5), 1.5),
        (Ratio(1, 2), Ratio(3, 4), 4 / 6),
        (Ratio(), Ratio(1, 4), 0.25),
        (Series(((0, 1.0), (1, 2.0))), Series(((7, 6.0),)), 3.0),
        (Series(), Series(((1, 2.0),)), 2.0),
    ],
)
def test_two_of_a_kind(one, other, value):
    assert one.merged(other).value == pytest.approx(value)
    assert other.merged(one).value == pytest.approx(value)
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("nothing", [Ratio(), Ratio(3, 0), Series()])
def test_the_mean_of_nothing(nothing):
    assert math.isnan(nothing.value)


def test_a_count_stays_whole():
    assert type(Sum(1).merged(Sum(True)).value) is int


def test_metrics_are_added_to():
    metrics = Metrics()
    metrics.add("wins", Ratio(1, 1))
    metrics.add("wins", Ratio(0, 1))
    metrics.add("steps", Sum(4))
    assert values(metrics) == {"wins": 0.5, "steps": 4}


def test_a_metric_is_of_one_kind():
    metrics = Metrics(wins=Sum(1))
    with pytest.raises(TypeError, match="'wins' is a Sum, got a Ratio"):
        metrics.add("wins", Ratio(1, 1))
    assert metrics == {"wins": Sum(1)}


def test_averages_over_episodes_and_over_reports():
    """W-19"""
    reports = [{"won": Ratio(1, 2)}, {"won": Ratio(8, 8), "steps": Sum(3)}]
    assert values(merged(reports)) == {"won": 0.9, "steps": 3}
    assert macro_average(reports) == {"won": 0.75, "steps": 3}
    assert reports[0] == {"won": Ratio(1, 2)}  # left as it was


def test_the_order_of_reports_does_not_matter():
    reports = [{"x": Ratio(n, n + 1), "y": Sum(n)} for n in range(4)]
    assert merged(reports) == merged(reversed(reports))
    halves = [merged(reports[:2]), merged(reports[2:])]
    assert merged(halves) == merged(reports)
