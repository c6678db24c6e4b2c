"""Whether what a process takes grows: samples over time, and their slope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import psutil

from distrl.benchmark.measuring import Record

QUANTITIES = {
    "rss_mb": "MB",
    "threads": "threads",
    "descriptors": "descriptors",
    "graph_operations": "graph operations",
}
#: By how much something may grow over what is looked at and still be flat: so much, or
#: so large a share.
FLAT = {
    "rss_mb": (8.0, 0.01),
    "threads": (2.0, 0.02),
    "descriptors": (4.0, 0.02),
    "graph_operations": (4.0, 0.0),
}
CLIENT_MB = 0.17  # that TensorFlow keeps of a client which is gone


class Growth(NamedTuple):
    """Of one quantity of one task."""

    task: str
    quantity: str
    per_hour: float
    difference: float  # by the slope, over the time that was looked at
    last: float
    flat: bool


def sample(process: psutil.Process) -> Record:
    """Resident memory in MB, threads and file descriptors of a process.

    Raises psutil.Error when it has ended.
    """
    with process.oneshot():
        return {
            "rss_mb": round(process.memory_info().rss / 1e6, 3),
            "threads": process.num_threads(),
            "descriptors": process.num_fds(),
        }


def growth_of(
    task: str, samples: Sequence[Mapping[str, float]], allowed_mb: float = 0.0
) -> list[Growth]:
    """What the last two thirds of the samples say of each quantity.

    A sample has `time` in s, the quantities, and `actors`, how many there were: what
    goes up and down with them is not growth. `allowed_mb` is memory that is known to be
    kept. Raises ValueError for fewer than three samples.
    """
    if len(samples) < 3:
        raise ValueError(f"{task}: expected three samples or more, got {len(samples)}")
    first, last = samples[0]["time"], samples[-1]["time"]
    late = [s for s in samples if s["time"] >= first + (last - first) / 3]
    times = np.array([s["time"] for s in late]) - late[0]["time"]
    actors = np.array([s["actors"] for s in late], np.float64)
    found = []
    for quantity in QUANTITIES:
        values = np.array([s[quantity] for s in late], np.float64)
        slope = _slope(times, actors, values)
        difference = slope * float(times[-1])
        absolute, share = FLAT[quantity]
        allowed = max(absolute, share * float(values.mean()))
        allowed += allowed_mb if quantity == "rss_mb" else 0.0
        per_hour = slope * 3600
        flat = difference <= allowed
        found.append(
            Growth(task, quantity, per_hour, difference, float(values[-1]), flat)
        )
    return found


def _slope(times: np.ndarray, actors: np.ndarray, values: np.ndarray) -> float:
    """A second, by least squares, at a constant number of actors."""
    columns = [np.ones_like(times), times]
    if np.ptp(actors):
        columns.append(actors)
    solution, *_ = np.linalg.lstsq(np.stack(columns, axis=1), values, rcond=None)
    return float(solution[1])
