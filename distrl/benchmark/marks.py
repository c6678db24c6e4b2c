"""Rates of messages that pass from one process to another, seen at either end.

The sender numbers the repeats of a measurement, and each message says which repeat it
belongs to, so both ends measure the same messages without talking to each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

WARM_UP_MESSAGES = 10


class Mark(NamedTuple):
    """The moment when the first message of a repeat passed."""

    messages: int  # before it
    wall: float
    cpu: float


class Marks:
    """The marks of one process. Repeat 0 warms up."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.messages = 0

    def note(self, repeat: int) -> None:
        """A message of this repeat passes."""
        if repeat == len(self.marks):
            now = time.perf_counter(), time.process_time()
            self.marks.append(Mark(self.messages, *now))
        self.messages += 1


def rates(marks: Sequence[Mark]) -> tuple[float, float]:
    """Medians of the repeats: messages a second, CPU ms a message."""
    pairs = list(zip(marks[1:-1], marks[2:], strict=True))
    messages = [after.messages - before.messages for before, after in pairs]
    walls = [after.wall - before.wall for before, after in pairs]
    cpus = [after.cpu - before.cpu for before, after in pairs]
    return (
        float(np.median(np.divide(messages, walls))),
        float(np.median(np.divide(cpus, messages)) * 1000),
    )


def send_all(put: Callable[[int], None], secs: float, repeats: int) -> list[Mark]:
    """Puts messages of repeat 0, 1, … for their time; one of the last closes them."""
    marks = Marks()
    for repeat in range(repeats + 1):
        end = time.monotonic() + secs / repeats
        passed = False
        while not passed:
            marks.note(repeat)
            put(repeat)
            passed = time.monotonic() >= end and marks.messages >= WARM_UP_MESSAGES
    marks.note(repeats + 1)
    put(repeats + 1)
    return marks.marks


def receive_all(get: Callable[[], int], repeats: int) -> list[Mark]:
    """Gets messages up to the one that closes the last repeat."""
    marks = Marks()
    while len(marks.marks) < repeats + 2:
        marks.note(get())
    return marks.marks
