"""Counts that several threads add to and one reads."""

from __future__ import annotations

import threading
from collections import defaultdict


class Counters:
    """Named totals that only grow. Reading has no side effect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: defaultdict[str, float] = defaultdict(int)

    def add(self, name: str, amount: float = 1) -> None:
        """Raises ValueError for a negative amount."""
        if amount < 0:
            raise ValueError(f"{name}: counts only grow, got {amount}")
        with self._lock:
            self._totals[name] += amount

    def get(self, name: str) -> float:
        with self._lock:
            return self._totals.get(name, 0)

    def snapshot(self) -> dict[str, float]:
        """All totals of one moment."""
        with self._lock:
            return dict(self._totals)
