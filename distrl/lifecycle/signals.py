"""Signals that have arrived, as plain values that any thread may read."""

from __future__ import annotations

import os
import signal
from types import FrameType


class Signals:
    """The first SIGINT or SIGTERM is noted, a second one ends the process at once."""

    def __init__(self) -> None:
        self.received = ""  # its name

    def install(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)
        self.received = signal.Signals(number).name
