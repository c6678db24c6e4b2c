"""Metrics that can be added up over rows, workers and tasks, whatever the order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

R = TypeVar("R", bound="Reducer")


class Reducer(Protocol):
    """One metric: two of them are merged, and its value is read."""

    @property
    def value(self) -> float: ...

    def merged(self: R, other: R) -> R: ...


class Sum(NamedTuple):
    """A count, or an amount."""

    total: float = 0

    @property
    def value(self) -> float:
        return self.total

    def merged(self, other: Sum) -> Sum:
        return Sum(self.total + other.total)


class Ratio(NamedTuple):
    """One amount for each unit of another, such as wins for each game. `Ratio(x, 1)` is
    the mean of one number. NaN where there is nothing to divide by."""

    numerator: float = 0.0
    denominator: float = 0.0

    @property
    def value(self) -> float:
        if not self.denominator:
            return float("nan")
        return self.numerator / self.denominator

    def merged(self, other: Ratio) -> Ratio:
        return Ratio(
            self.numerator + other.numerator, self.denominator + other.denominator
        )


class Series(NamedTuple):
    """Single numbers by the number of their episode; its value is their mean. It grows
    with every episode: for evaluations."""

    entries: tuple[tuple[int, float], ...] = ()

    @property
    def value(self) -> float:
        numbers = [number for _, number in self.entries]
        return sum(numbers) / len(numbers) if numbers else float("nan")

    def merged(self, other: Series) -> Series:
        return Series(self.entries + other.entries)


Report = dict[str, Reducer]


class Metrics(dict[str, Reducer]):
    """Reducers by name, to be added to."""

    def add(self, name: str, reducer: Reducer) -> None:
        """Raises TypeError for one of another kind than is there."""
        known = self.get(name)
        if known is None:
            self[name] = reducer
        elif type(known) is not type(reducer):
            kinds = type(known).__name__, type(reducer).__name__
            raise TypeError(f"metric {name!r} is a {kinds[0]}, got a {kinds[1]}")
        else:
            self[name] = known.merged(reducer)


def merged(reports: Iterable[Report]) -> Metrics:
    """The micro average: every episode counts the same, whichever report has it."""
    found = Metrics()
    for report in reports:
        for name, reducer in report.items():
            found.add(name, reducer)
    return found


def values(report: Report) -> dict[str, float]:
    """What the metrics come to."""
    return {name: reducer.value for name, reducer in report.items()}


def macro_average(reports: Iterable[Report]) -> dict[str, float]:
    """Every report counts the same, however many episodes it has: of each metric the
    mean over the reports that have it."""
    found: dict[str, list[float]] = {}
    for report in reports:
        for name, value in values(report).items():
            found.setdefault(name, []).append(value)
    return {name: sum(numbers) / len(numbers) for name, numbers in found.items()}
