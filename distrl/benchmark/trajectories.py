"""What unrolls cost: `python -m distrl.benchmark.trajectories [--quick]`.

Medians of the CPU time in µs an environment step, 16 streams and 20 steps an unroll:
accumulate (at the actor, allocation of the arrays included), insert of 16 unrolls into
a memory and sample of batches of 32 from it. With a proportion of 1 every other row of
a batch is a replayed one, so that an insert copies three unrolls for each that came;
"an environment step" is one of the inserted, or of the sampled ones. One table for
people, then one JSON line a case and proportion.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distrl.benchmark.measuring import median_cpu_ms, print_records
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.core.trajectories import Trajectories, trajectories_spec
from distrl.memories.trajectory_memory import TrajectoryMemory
from distrl.memories.unroll_accumulator import UnrollAccumulator

NUM_STREAMS = 16
NUM_STEPS = 20
NUM_ACTIONS = 4
BATCH_SIZE = 32
REPLAY_CAPACITY = 64
PROPORTIONS = (0.0, 1.0)
CASES = {
    "small": ArraySpec((4,), "float32"),
    "image": ArraySpec((4, 84, 84), "uint8", num_stacked=4),
}


def spec_of(observation: ArraySpec) -> Trajectories:
    action = ArraySpec((), "int64", 0, NUM_ACTIONS - 1)
    environment = EnvironmentSpec(observation, action)
    return trajectories_spec(environment, action, NUM_ACTIONS, NUM_STEPS)


class Producer:
    """Steps of one endless episode in each stream."""

    def __init__(self, spec: Trajectories):
        self._accumulator = UnrollAccumulator(spec, NUM_STREAMS)
        shape, dtype = spec.observation.shape[1:], spec.observation.dtype
        # Not zeros: memory that was never written is cheaper to read than frames.
        self._observation = np.ones((NUM_STREAMS, *shape), dtype)
        self._action = np.zeros(NUM_STREAMS, np.int64)
        self._parameters = np.zeros((NUM_STREAMS, NUM_ACTIONS), np.float32)
        self._reward = np.zeros(NUM_STREAMS, np.float32)
        self._no_end = np.zeros(NUM_STREAMS, bool)
        self._step()

    def _step(self) -> Trajectories | None:
        finished = self._accumulator.begin(
            self._observation, self._action, self._parameters, 1
        )
        self._accumulator.end(self._reward, self._no_end, self._no_end)
        return None if finished is None else finished[0]

    def unrolls(self) -> Trajectories:
        """The next one of each stream."""
        for _ in range(NUM_STEPS - 1):
            self._step()
        finished = self._step()
        if finished is None:
            raise RuntimeError(f"no unroll in {NUM_STEPS} steps")
        return finished


def measure(case: str, proportion: float, repeats: int) -> dict[str, Any]:
    """Times a case in the steady state; one flat record."""
    spec = spec_of(CASES[case])
    producer = Producer(spec)
    memory = TrajectoryMemory(
        spec, BATCH_SIZE, 0, REPLAY_CAPACITY if proportion else 0, proportion
    )
    block = producer.unrolls()
    for _ in range(REPLAY_CAPACITY // NUM_STREAMS):
        _insert(memory, block)()
        _drain(memory)
    accumulate = median_cpu_ms([producer.unrolls] * repeats)
    inserts, samples = [], []
    for _ in range(repeats):
        inserts.append(median_cpu_ms([_insert(memory, block)]))
        if memory.can_sample:
            samples.append(median_cpu_ms([memory.sample]))
        _drain(memory)
    inserted, sampled = NUM_STREAMS * NUM_STEPS, BATCH_SIZE * NUM_STEPS
    costs = {
        "accumulate": accumulate / inserted,
        "insert": float(np.median(inserts)) / inserted,
        "sample": float(np.median(samples)) / sampled,
    }
    return {
        "case": case,
        "replay_proportion": proportion,
        **{f"{name}_cpu_us": round(1e3 * ms, 4) for name, ms in costs.items()},
    }


def _insert(memory: TrajectoryMemory, block: Trajectories) -> Callable[[], None]:
    return lambda: memory.insert(block)


def _drain(memory: TrajectoryMemory) -> None:
    while memory.can_sample:
        memory.sample()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few calls")
    repeats = 4 if parser.parse_args(arguments).quick else 100
    print_records(
        [measure(case, p, repeats) for case in CASES for p in PROPORTIONS],
    )


if __name__ == "__main__":
    main()
