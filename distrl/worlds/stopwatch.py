"""How long something takes, with pauses."""

from __future__ import annotations

import time


class Stopwatch:
    """Runs from the beginning; `stop` freezes the reading, `resume` goes on."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Zero, and running."""
        self._elapsed, self._since = 0.0, time.monotonic()
        self.running = True

    @property
    def seconds(self) -> float:
        """The reading."""
        now = time.monotonic() - self._since if self.running else 0.0
        return self._elapsed + now

    def stop(self) -> float:
        """The reading, which stays; stopping twice changes nothing."""
        self._elapsed, self.running = self.seconds, False
        return self._elapsed

    def resume(self) -> None:
        if not self.running:
            self._since, self.running = time.monotonic(), True
