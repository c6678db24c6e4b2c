"""What travels in a channel: a header and the leaves of a record."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from distrl.cluster.spec import JOBS
from distrl.core import specs
from distrl.core.nests import flatten_as, unflatten_as
from distrl.core.specs import Nest

DATA, END = 0, 1


class Producer(NamedTuple):
    """Who sends. A restarted task is another producer."""

    job: str
    task: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.job}/{self.task}"

    def header(
        self,
        kind: int,
        sequence: int,
        rows: int,
        total_rows: int,
        version: int = -1,
        round: int = -1,
    ) -> Header:
        """The header of one of its messages."""
        job = JOBS.index(self.job)
        return Header(
            kind,
            job,
            self.task,
            self.incarnation,
            sequence,
            rows,
            total_rows,
            version,
            round,
        )


class Header(NamedTuple):
    """The int64 vector in front of every message."""

    kind: int  # DATA or END
    job: int  # index into JOBS
    task: int
    incarnation: int
    sequence: int  # 1, 2, … of this producer in this channel
    rows: int
    total_rows: int  # of this producer in this channel, up to and including these
    version: int  # of the parameters behind the rows, -1 where there are none
    round: int  # of a synchronous agent, -1 where there are none

    @property
    def producer(self) -> Producer:
        return Producer(JOBS[self.job], self.task, self.incarnation)


class Message(NamedTuple):
    header: Header
    record: Nest


@dataclasses.dataclass(frozen=True)
class ChannelSpec:
    """The name of a channel, the leaves of its records, its capacity in messages.

    A channel with lanes has a queue each, such as one for each actor; they are counted
    together, under the name.
    """

    name: str
    record: Nest  # of ArraySpec; leaves have one free leading axis
    capacity: int
    lane: str = ""

    @property
    def queue_name(self) -> str:
        """Of the queue, on its host."""
        return f"{self.name}/{self.lane}" if self.lane else self.name

    @property
    def digest(self) -> str:
        """Equal exactly when two sides can talk to each other."""
        return specs.digest(self.record)

    @property
    def dtypes(self) -> list[str]:
        """Of the queue's components: the header and the leaves."""
        return ["int64", *(leaf.dtype for leaf in specs.leaves(self.record))]

    def pack(self, header: Header, record: Nest) -> list[np.ndarray]:
        """The components of one message. Raises ValueError when it does not fit."""
        specs.validate(self.record, record, 1, f"channel {self.name}")
        return [np.asarray(header, np.int64), *flatten_as(self.record, record)]

    def unpack(self, components: list[np.ndarray]) -> Message:
        header = Header(*(int(number) for number in components[0]))
        return Message(header, unflatten_as(self.record, components[1:]))

    def empty(self) -> Nest:
        """A record without rows."""
        flat = [leaf.zeros(0) for leaf in specs.leaves(self.record)]
        return unflatten_as(self.record, flat)
