"""Schedules at their ends, between and beyond."""

from __future__ import annotations

import pytest

from distrl.core.schedules import constant, linear


def test_constant():
    assert [constant(0.4)(count) for count in (0, 1, 1e9)] == [0.4] * 3


@pytest.mark.parametrize(
    ("count", "value"), [(-5, 1.0), (0, 1.0), (25, 0.75), (100, 0.0), (1000, 0.0)]
)
def test_linear(count, value):
    assert linear(1.0, 0.0, end=100)(count) == pytest.approx(value)


@pytest.mark.parametrize("end", [0, -1])
def test_linear_needs_an_end(end):
    with pytest.raises(ValueError, match=str(end)):
        linear(0.0, 1.0, end)
