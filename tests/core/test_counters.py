"""Counters that several threads add to."""

from __future__ import annotations

import threading

import pytest

from distrl.core.counters import Counters


def test_totals_add_up_and_unknown_names_are_zero():
    counters = Counters()
    counters.add("a")
    counters.add("a", 2)
    counters.add("b", 0.5)
    assert counters.get("a") == 3
    assert counters.get("never") == 0
    assert counters.snapshot() == {"a": 3, "b": 0.5}  # and reading added no name


def test_a_snapshot_is_a_copy():
    counters = Counters()
    counters.add("a")
    counters.snapshot()["a"] = 7
    assert counters.get("a") == 1


def test_negative_amounts_are_refused():
    with pytest.raises(ValueError, match=r"lost/x.*-3"):
        Counters().add("lost/x", -3)


def test_nothing_is_lost_between_threads():
    counters, barrier = Counters(), threading.Barrier(4)

    def count() -> None:
        barrier.wait()
        for _ in range(2000):
            counters.add("a")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.get("a") == 8000
