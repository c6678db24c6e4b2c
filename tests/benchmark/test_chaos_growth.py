"""Growth is the slope of the last two thirds, not start-up, not more actors."""

import os

import numpy as np
import psutil
import pytest

from distrl.benchmark.growth import growth_of, sample


def samples_of(
    rss_mb, threads=lambda t, a: 20, actors=lambda t: 1, secs=1800, graphs=lambda t: 90
):
    random = np.random.default_rng(0)
    return [
        {
            "time": 5.0 * n,
            "actors": actors(5.0 * n),
            "rss_mb": rss_mb(5.0 * n, actors(5.0 * n)) + random.normal() * 0.2,
            "threads": threads(5.0 * n, actors(5.0 * n)),
            "descriptors": 40,
            "graph_operations": graphs(5.0 * n),
        }
        for n in range(secs // 5)
    ]


def by_quantity(samples, allowed_mb=0.0):
    return {g.quantity: g for g in growth_of("ps/0", samples, allowed_mb)}


def test_what_rises_in_the_first_third_only_is_flat():
    found = by_quantity(samples_of(lambda t, a: min(t, 590) + 300))
    assert all(growth.flat for growth in found.values())
    assert found["rss_mb"].difference == pytest.approx(0.0, abs=0.5)


def test_a_leak_is_told_with_its_size():
    leak = by_quantity(samples_of(lambda t, a: 300 + 60 * t / 3600))["rss_mb"]
    assert leak.per_hour == pytest.approx(60, rel=0.05)
    assert leak.difference == pytest.approx(20, rel=0.05) and not leak.flat
    assert by_quantity(samples_of(lambda t, a: 300 + 60 * t / 3600), 20)["rss_mb"].flat


def test_a_thread_every_ten_minutes_is_not_flat():
    threads = by_quantity(samples_of(lambda t, a: 9, lambda t, a: t // 250))["threads"]
    assert threads.difference == pytest.approx(4.8, abs=0.5) and not threads.flat


def test_an_operation_every_four_minutes_is_not_flat():
    samples = samples_of(lambda t, a: 9, graphs=lambda t: 5000 + t // 240)
    graphs = by_quantity(samples)["graph_operations"]
    assert graphs.difference == pytest.approx(5.0, abs=0.5) and not graphs.flat


def test_more_actors_are_not_growth():
    def actors(t):
        return 1 + (t > 1300) + 2 * (int(t) % 300 > 150)

    samples = samples_of(lambda t, a: 300 + 10 * a, lambda t, a: 5 + 6 * a, actors)
    found = by_quantity(samples)
    assert found["rss_mb"].flat and found["threads"].flat
    assert found["threads"].difference == pytest.approx(0.0, abs=1e-6)


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="ps/0.*got 2"):
        growth_of("ps/0", samples_of(lambda t, a: 1)[:2])


def test_a_sample_of_this_process():
    found = sample(psutil.Process())
    assert found["rss_mb"] > 1 and found["threads"] >= 1
    with open(os.devnull):
        assert sample(psutil.Process())["descriptors"] == found["descriptors"] + 1
