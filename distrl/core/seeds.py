"""Random streams: one root seed, a stream of its own for every place in the run."""

from __future__ import annotations

import dataclasses

import numpy as np

_RESTARTS_OF_A_SLOT = 1 << 16  # in one life of its task
JOBS = ("ps", "memory", "learner", "actor", "evaluation")


def seed_sequence(
    seed: int, job: str, task: int, environment: int = 0, restart: int = 0
) -> np.random.SeedSequence:
    """The stream of one environment slot (or of the task itself) of one task.

    Streams of different (job, task, environment, restart) and of different root
    seeds are disjoint. `environment` 0 is the task's own stream, slot e has e + 1.
    Raises ValueError for an unknown job or a negative number.
    """
    if job not in JOBS:
        raise ValueError(f"job must be one of {JOBS}, got {job!r}")
    key = (JOBS.index(job), task, environment, restart)
    if seed < 0 or min(key) < 0:
        raise ValueError(f"seeds and indices must be at least 0, got {seed}, {key}")
    return np.random.SeedSequence(seed, spawn_key=key)


def integer_seed(sequence: np.random.SeedSequence) -> int:
    """A 31-bit integer for libraries that take one."""
    return int(sequence.generate_state(1, np.uint32)[0] >> 1)


@dataclasses.dataclass(frozen=True)
class EnvironmentSeeds:
    """The seeds of one task's environments: `seeds.of(slot, restart)`.

    `first` is the number of slot 0, for a group of the task's environments; `restart`
    counts the starts of the task before this one.
    """

    seed: int  # of the run
    job: str
    task: int
    first: int = 0
    restart: int = 0

    def of(self, slot: int, restart: int = 0) -> int:
        """A 31-bit seed; `restart` is the slot's own, 0 its first start in this life
        of the task. Raises ValueError for numbers out of range."""
        if slot < 0:
            raise ValueError(f"slots count from 0, got {slot}")
        if not 0 <= restart < _RESTARTS_OF_A_SLOT:
            limit = _RESTARTS_OF_A_SLOT - 1
            raise ValueError(f"restart: expected 0 to {limit}, got {restart}")
        lives = self.restart * _RESTARTS_OF_A_SLOT + restart
        place = (self.job, self.task, self.first + slot + 1, lives)
        return integer_seed(seed_sequence(self.seed, *place))

    def behind(self, slots: int) -> EnvironmentSeeds:
        """The seeds of the group that begins `slots` later."""
        return dataclasses.replace(self, first=self.first + slots)
