"""How old the policies are that acted in what is trained on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from distrl.core.specs import Nest


class Lag(NamedTuple):
    """In updates; None before there is one."""

    mean: float | None
    max: float | None


class PolicyLag:
    """The learner's version minus the acting one, over the last `window` updates."""

    def __init__(self, window: int = 100):
        self._lock = threading.Lock()
        self._seen: deque[tuple[float, int, float]] = deque(maxlen=window)

    def add(self, version: int, acted: np.ndarray | None) -> None:
        """An update of `version` on rows that were acted with versions `acted`."""
        if acted is None or not acted.size:
            return
        lags = version - acted
        with self._lock:
            self._seen.append((float(lags.sum()), lags.size, float(lags.max())))

    def read(self) -> Lag:
        with self._lock:
            seen = list(self._seen)
        if not seen:
            return Lag(None, None)
        sums, sizes, maxima = zip(*seen, strict=True)
        return Lag(sum(sums) / sum(sizes), max(maxima))


def acting_versions(batch: Nest) -> np.ndarray | None:
    """The `version` leaf of a batch, None if it has none."""
    found: Any = getattr(batch, "version", None)
    if isinstance(batch, Mapping):
        found = batch.get("version")
    return None if found is None else np.asarray(found, np.int64)
