"""What learning costs: `python -m distrl.benchmark.learning --config=FILE`.

One learner alone: the training step of the configuration on random batches of its size
that are ready, without run, network and queue. Medians of the repeats:

  learner_steps_per_sec  of wall time
  cpu_ms                 CPU ms a learner step, all threads, target updates included
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence

import numpy as np

from distrl.benchmark import configured
from distrl.benchmark.measuring import Record, medians, rounded
from distrl.core.nests import map_nest
from distrl.core.records import ReplayBatch, Transition
from distrl.core.specs import ArraySpec, EnvironmentSpec

NUM_BATCHES = 8


def random_array(leaf: ArraySpec, rows: int, random: np.random.Generator) -> np.ndarray:
    """Values within the leaf's bounds; small ones where it has none. `[rows, ...]`"""
    shape = (rows, *leaf.shape)
    if np.issubdtype(np.dtype(leaf.dtype), np.floating):
        return random.normal(size=shape).astype(leaf.dtype)
    low = 0 if leaf.minimum is None else np.reshape(leaf.minimum, -1).max()
    high = low + 1 if leaf.maximum is None else np.reshape(leaf.maximum, -1).min()
    return random.integers(int(low), int(high), shape, endpoint=True).astype(leaf.dtype)


def random_batch(
    spec: EnvironmentSpec, rows: int, random: np.random.Generator
) -> ReplayBatch:
    """A batch that a memory could have served."""

    def some(leaf: ArraySpec) -> np.ndarray:
        return random_array(leaf, rows, random)

    transition = Transition(
        s_tm1=map_nest(some, spec.observation),
        a_tm1=map_nest(some, spec.action),
        r_t=random.normal(size=rows).astype(np.float32),
        discount_t=np.full(rows, 0.97, np.float32),
        s_t=map_nest(some, spec.observation),
    )
    return ReplayBatch(transition, np.ones(rows, np.float32), np.arange(rows))


def measure(flags: argparse.Namespace) -> list[Record]:
    """One record."""
    agent = configured.read_agent(flags)
    from distrl.learners.learning_session import LearningSession

    spec, rows = agent.environment_spec(), agent.replay.batch_size
    random = np.random.default_rng(0)
    batches = itertools.cycle(
        [random_batch(spec, rows, random) for _ in range(NUM_BATCHES)]
    )
    session = LearningSession(agent.model, spec, 0, agent.learning.num_threads)

    def step() -> int:
        session.train(next(batches))
        return 1

    costs = medians(step, flags.secs, flags.repeats)
    session.close()
    record = {
        "part": "learning",
        "batch_size": rows,
        "learner_steps_per_sec": costs["per_sec"],
        "cpu_ms": costs["cpu"],
    }
    return [rounded(record)]


def main(arguments: Sequence[str] | None = None) -> None:
    flags = configured.parser(__doc__, secs=10.0).parse_args(arguments)
    configured.print_measured("learning", flags, measure)


if __name__ == "__main__":
    main()
