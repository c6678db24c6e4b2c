"""Values that change over the run, as functions of a count."""

from __future__ import annotations

from collections.abc import Callable

Schedule = Callable[[float], float]


def constant(value: float) -> Schedule:
    """The same value at every count."""
    return lambda count: value


def linear(first: float, last: float, end: float) -> Schedule:
    """From `first` at count 0 to `last` at count `end`, constant from there on."""
    if end <= 0:
        raise ValueError(f"end must be above 0, got {end}")
    return lambda count: first + (last - first) * min(max(count / end, 0.0), 1.0)
