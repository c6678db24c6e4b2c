"""One round of a synchronous agent: everybody's share, each exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from distrl.core.nests import concatenate
from distrl.core.specs import Nest


class Part(NamedTuple):
    """What a memory has collected of one round."""

    round: int
    record: Nest | None  # the shares, joined in the order of their actors
    rows: int
    actors: list[int]  # whose shares it holds


class AggregateMemory:
    """Waits for the share of every member, and knows whom it still waits for.

    memory.begin(7, {0: incarnation, 1: incarnation})
    memory.add(7, 0, incarnation, record, rows)
    memory.drop(1)                     # it is gone
    if memory.whole:
        part = memory.take()
    """

    def __init__(self) -> None:
        self._round = -1
        self._members: dict[int, int] = {}
        self._shares: dict[int, tuple[Nest, int]] = {}
        self._open = False

    def begin(self, round: int, members: Mapping[int, int]) -> int:
        """Waits for a new round of these actors (by index, with incarnation).

        Returns the rows of an earlier round that go with it, because it never became
        whole. Raises ValueError unless the number is above the last one.
        """
        if round <= self._round:
            raise ValueError(f"round {round} after round {self._round}")
        dropped = self.abandon()
        self._round, self._members, self._open = round, dict(members), True
        return dropped

    @property
    def round(self) -> int:
        """The newest one, -1 before the first."""
        return self._round

    @property
    def missing(self) -> dict[int, int]:
        """Members whose shares are awaited, with their incarnations."""
        return {a: i for a, i in self._members.items() if a not in self._shares}

    def add(
        self, round: int, actor: int, incarnation: int, record: Nest, rows: int
    ) -> bool:
        """Takes in a share; False, and nothing changed, for another round's, for one
        that came before, and from somebody who is not a member."""
        expected = self._open and round == self._round
        if not expected or self.missing.get(actor) != incarnation:
            return False
        self._shares[actor] = record, rows
        return True

    def drop(self, actor: int) -> None:
        """Does not wait for this actor any more. What it has sent stays."""
        if actor in self.missing:
            del self._members[actor]

    @property
    def whole(self) -> bool:
        """Whether the round can be taken: nobody is missing, and nobody took it."""
        return self._open and not self.missing

    def take(self) -> Part:
        """The round; once. Raises ValueError unless it is whole."""
        if not self.whole:
            raise ValueError(f"round {self._round} is not whole: {self.missing}")
        actors = sorted(self._shares)
        records = [self._shares[actor][0] for actor in actors]
        rows = sum(self._shares[actor][1] for actor in actors)
        self._shares, self._open = {}, False
        record = concatenate(records) if records else None
        return Part(self._round, record, rows, actors)

    def abandon(self) -> int:
        """Gives the round up; the rows that go with it."""
        dropped = sum(rows for _, rows in self._shares.values())
        self._shares, self._members, self._open = {}, {}, False
        return dropped
