"""What the memories cost: `python -m distrl.benchmark.memories [--quick]`.

Medians of the CPU time of a call, in ms, on full memories: insert of 64 transitions
(with their 64 frames), sample and update of 256, and sample of 8 batches of 256. One
table for people, then one JSON line a memory and size.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from distrl.benchmark.measuring import median_cpu_ms, print_records
from distrl.core.nests import map_nest
from distrl.core.records import Experience, frame_spec
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.memories.prioritized import PrioritizedMemory
from distrl.memories.replay_memory import ReplayMemory
from distrl.memories.uniform import UniformMemory

NUM_STREAMS = 16
N_STEP = 3
BATCH_SIZE = 256
INSERTED_ROWS = 64


class Case(NamedTuple):
    name: str
    observation: ArraySpec
    capacity: int

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec(self.observation, ArraySpec((), "int64", 0, 17))


SMALL = ArraySpec((4,), "float32")
IMAGE = ArraySpec((4, 84, 84), "uint8", num_stacked=4)
CASES = (Case("small", SMALL, 1_000_000), Case("image", IMAGE, 100_000))
QUICK_CASES = (Case("small", SMALL, 2_000), Case("image", IMAGE, 500))


class Producer:
    """Blocks of one endless episode in each of its streams."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_streams: int = NUM_STREAMS,
        n_step: int = N_STEP,
    ):
        self.num_streams = num_streams
        self.pending_rows = num_streams * n_step  # that have not ended yet
        self._spec, self._n_step = spec, n_step
        self._time = 0
        self._random = np.random.default_rng(0)

    def block(self, num_times: int) -> Experience:
        """The next `num_times` frames of every stream, and the transitions they end."""
        first, self._time = self._time, self._time + num_times
        starts = np.arange(
            max(0, first - self._n_step), max(0, self._time - self._n_step)
        )
        stream = np.tile(np.arange(self.num_streams, dtype=np.int32), len(starts))
        rows = len(stream)
        time_tm1 = np.repeat(starts, self.num_streams)
        return Experience(
            blocks=np.array([[first, num_times, self.num_streams, rows]]),
            frames=map_nest(
                lambda leaf: _ones(leaf, num_times * self.num_streams),
                frame_spec(self._spec.observation),
            ),
            stream=stream,
            episode_start=np.zeros(rows, np.int64),
            time_tm1=time_tm1,
            time_t=time_tm1 + self._n_step,
            action=map_nest(lambda leaf: leaf.zeros(rows), self._spec.action),
            reward=np.ones(rows, np.float32),
            discount=np.ones(rows, np.float32),
            priority=self._random.random(rows, np.float32) + np.float32(0.1),
        )


def _ones(leaf: ArraySpec, rows: int) -> np.ndarray:
    """Not zeros: memory that was never written is cheaper to read than real frames."""
    return np.ones((rows, *leaf.shape), leaf.dtype)


def measure(memory: ReplayMemory, case: Case, repeats: int) -> dict[str, Any]:
    """Fills `memory` and times its calls; one flat record."""
    producer, random = Producer(case.spec), np.random.default_rng(1)
    while memory.size < memory.capacity:
        memory.insert("producer", producer.block(64))
    blocks = [producer.block(INSERTED_ROWS // NUM_STREAMS) for _ in range(repeats)]
    drawn = [memory.sample(1, BATCH_SIZE).id for _ in range(repeats)]
    new = random.random(BATCH_SIZE) + 0.1

    def insert(block: Experience) -> Callable[[], int]:
        return lambda: memory.insert("producer", block)

    def update(ids: np.ndarray) -> Callable[[], int]:
        return lambda: memory.update(ids, new)

    costs = {
        "update_256": median_cpu_ms([update(ids) for ids in drawn]),
        "insert_64": median_cpu_ms([insert(block) for block in blocks]),
        "sample_256": median_cpu_ms([lambda: memory.sample(1, BATCH_SIZE)] * repeats),
        "sample_8x256": median_cpu_ms(
            [lambda: memory.sample(8, BATCH_SIZE)] * max(3, repeats // 4)
        ),
    }
    return {
        "memory": type(memory).__name__,
        "case": case.name,
        "capacity": case.capacity,
        **{f"{name}_cpu_ms": round(cost, 4) for name, cost in costs.items()},
        "bytes_per_transition": round(memory.bytes_per_transition, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, few calls")
    quick = parser.parse_args(arguments).quick
    records = []
    for case in QUICK_CASES if quick else CASES:
        for kind in (UniformMemory, PrioritizedMemory):
            memory = kind(case.spec, case.capacity, 0)
            records.append(measure(memory, case, repeats=10 if quick else 200))
            del memory  # before the next one is made: the image cases take 0.8 GB
    print_records(records)


if __name__ == "__main__":
    main()
