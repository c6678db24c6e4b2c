"""The back-ends that run in processes, and what their tests ask of them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from process_samples import Factory

from distrl.core.child_process import ChildLimits
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.parallel_environment import ParallelEnvironment
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)
from distrl.environments.slot_records import SlotSettings
from distrl.environments.vector_environment import VectorEnvironment

LIMITS = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=3.0)
IMPATIENT = ChildLimits(startup_secs=30.0, call_secs=0.5, close_secs=0.3)
SEEDS = EnvironmentSeeds(7, "actor", 3)

Maker = Callable[..., VectorEnvironment]  # (factory, num_envs, **kwargs)


def parallel(
    factory: Factory, num_envs: int, *args: Any, **kwargs: Any
) -> ParallelEnvironment:
    return ParallelEnvironment([factory] * num_envs, *args, **kwargs)


def shared(each: int | None, copy: bool = True) -> Maker:
    return functools.partial(
        SharedMemoryVectorEnvironment, environments_per_process=each, copy=copy
    )


#: Every kind of processes, and those of none.
BACK_ENDS: dict[str, Maker] = {
    "parallel": parallel,
    "parallel, flat": functools.partial(parallel, flatten=True),
    "parallel, blocking": functools.partial(parallel, blocking=True),
    "shared": shared(None),
    "shared, 1 each": shared(1),
    "shared, 2 each": shared(2),
    "shared, 3 each": shared(3),
    "shared, no copy": shared(1, copy=False),
    "parallel, inline": functools.partial(parallel, start_method="inline"),
    "shared, inline": functools.partial(shared(2), start_method="inline"),
}
#: Those that differ in how they fail: pipes with a process each, and shared memory
#: with slots 0 and 1 in one process.
FEW = {name: BACK_ENDS[name] for name in ("parallel", "shared, 2 each")}


def serial(
    factory: Factory,
    num_envs: int,
    seeds: EnvironmentSeeds | None = None,
    settings: SlotSettings = SlotSettings(),
    limits: ChildLimits = LIMITS,
) -> SerialVectorEnvironment:
    """The reference; there is nothing that limits could be for."""
    return SerialVectorEnvironment(factory, num_envs, seeds, settings)


def pids(environment: Any) -> list[int]:
    """The processes of a vector environment, in the order of the slots."""
    return [worker.child.pid for worker in environment._workers]


def owner(environment: Any, slot: int) -> Any:
    """The child in which a slot lives."""
    (worker,) = (w for w in environment._workers if slot in w.slots)
    return worker.child


def zeros(environment: VectorEnvironment) -> np.ndarray:
    return np.zeros(environment.num_envs, np.int64)


@contextlib.contextmanager
def fails(
    error: type[BaseException], text: str, index: int | None
) -> Iterator[pytest.ExceptionInfo]:
    """Expects an error that names an environment."""
    with pytest.raises(error, match=text) as caught:
        yield caught
    assert getattr(caught.value, "environment_index", None) == index
    said = f"{caught.value} {caught.value.__cause__}"
    assert index is None or f"environment {index}" in said
