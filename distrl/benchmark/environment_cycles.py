"""What starts and ends of a SharedMemoryVectorEnvironment leave behind."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import gymnasium
import numpy as np
import psutil

from distrl.benchmark.measuring import Record, print_records
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)

NUM_ENVS = 2  # each in a process of its own
MAX_GROWTH_MB = 5.0  # over the second half

_SETTLE_SECS = 10.0  # for the fork server to reap, and other programs' shared memory
_LOOK_SECS = 0.02
_SHARED_MEMORY = "/dev/shm"


class Holdings(NamedTuple):
    """What this program holds, together with the processes that are below it."""

    rss_mb: float  # of this process
    helpers_rss_mb: float  # of the fork server and the like
    fds: int
    threads: int
    children: frozenset[int]
    shared_memory: frozenset[str]  # of the whole machine

    def record(self, cycles: int) -> Record:
        return {
            "cycles": cycles,
            "rss_mb": round(self.rss_mb, 2),
            "helpers_rss_mb": round(self.helpers_rss_mb, 2),
            "fds": self.fds,
            "threads": self.threads,
            "children": len(self.children),
            "shm_entries": len(self.shared_memory),
        }


def holdings() -> Holdings:
    """Of now. Raises psutil.NoSuchProcess when a child ends meanwhile."""
    own = psutil.Process()
    helpers = own.children(recursive=True)
    everyone = [own, *helpers]
    return Holdings(
        own.memory_info().rss / 2**20,
        sum(process.memory_info().rss for process in helpers) / 2**20,
        sum(process.num_fds() for process in everyone),
        sum(process.num_threads() for process in everyone),
        frozenset(process.pid for process in helpers),
        frozenset(os.listdir(_SHARED_MEMORY)),
    )


def left(before: Holdings, after: Holdings) -> list[str]:
    """What `after` has that `before` had not, one text each, memory aside."""
    found = []
    for name in ("fds", "threads"):
        old, new = getattr(before, name), getattr(after, name)
        if new > old:
            found.append(f"{new - old} {name} left")
    for name in ("children", "shared_memory"):
        if new := getattr(after, name) - getattr(before, name):
            found.append(f"{name} left: {sorted(new)}")
    return found


def settled(is_settled: Callable[[Holdings], bool]) -> Holdings:
    """The first holdings that are, or those at the deadline."""
    deadline = time.monotonic() + _SETTLE_SECS
    while True:
        gc.collect()
        with contextlib.suppress(psutil.NoSuchProcess):  # ended since it was listed
            found = holdings()
            if is_settled(found) or time.monotonic() > deadline:
                return found
        time.sleep(_LOOK_SECS)


def cycle() -> None:
    """Starts, resets, steps, closes."""
    factory = partial(gymnasium.make, "CartPole-v1")
    with SharedMemoryVectorEnvironment(
        factory, NUM_ENVS, environments_per_process=1
    ) as environment:
        environment.reset()
        environment.step(np.zeros(NUM_ENVS, np.int64))


def run(count: int, do: Callable[[], None] = cycle) -> list[Holdings]:
    """The holdings before, half-way and after `count` cycles, behind one that makes
    what stays, the fork server. Raises ValueError for less than 2."""
    if count < 2:
        raise ValueError(f"cycles must be at least 2, got {count}")
    do()
    # The environments are children of the fork server, which is a child of this.
    before = settled(lambda found: found.children <= _own_children())
    found = [before]
    for number in (count // 2, count - count // 2):
        for _ in range(number):
            do()
        found.append(settled(lambda now: not left(before, now)))
    return found


def _own_children() -> set[int]:
    return {process.pid for process in psutil.Process().children()}


def problems(before: Holdings, middle: Holdings, after: Holdings) -> list[str]:
    """What is left at the end, and memory that grew over the second half."""
    found = left(before, after)
    for name in ("rss_mb", "helpers_rss_mb"):
        growth = getattr(after, name) - getattr(middle, name)
        if growth > MAX_GROWTH_MB:
            found.append(f"{name} grew by {growth:.1f}, more than {MAX_GROWTH_MB:g}")
    return found


def report(count: int) -> list[str]:
    """Runs `count` cycles, prints the holdings, returns the problems."""
    start = time.monotonic()
    found = run(count)
    counts = (0, count // 2, count)
    print_records([h.record(n) for n, h in zip(counts, found, strict=True)])
    _, middle, after = found
    print(
        f"{count} cycles in {time.monotonic() - start:.1f} s, memory over the second "
        f"half {after.rss_mb - middle.rss_mb:+.2f} MB",
    )
    return problems(*found)
