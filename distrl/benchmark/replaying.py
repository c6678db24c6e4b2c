"""What replaying costs: `python -m distrl.benchmark.replaying --config=FILE`.

The memory of a configuration alone, without run, network and queue, with messages as
large as in a run: a block of one actor goes in, a bundle of batches comes out, its
priorities come back, and so on. Medians of the CPU time of these calls, for one row:

  insert_cpu_us  of a transition that comes in, its share of the frames included
  sample_cpu_us  of a transition that is drawn
  update_cpu_us  of a priority that comes back

--rows transitions are stored first (at most the capacity): a small memory is cheaper
than one that does not fit in a processor's cache.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from distrl.benchmark import configured
from distrl.benchmark.measuring import Record, rounded
from distrl.benchmark.memories import Producer
from distrl.core.errors import ConfigError
from distrl.memories.replay_memory import ReplayMemory

FILL_TIMES = 64  # of a block while the memory is filled
PRODUCER = "actor/0"


class CallCosts:
    """CPU ns a row of calls, by name."""

    def __init__(self) -> None:
        self._costs: defaultdict[str, list[float]] = defaultdict(list)

    def call(self, name: str, rows: int, function: Callable[[], Any]) -> Any:
        """What `function()` returns."""
        start = time.process_time_ns()
        result = function()
        self._costs[name].append((time.process_time_ns() - start) / rows)
        return result

    def medians_us(self) -> dict[str, float]:
        return {name: float(np.median(c)) / 1e3 for name, c in self._costs.items()}


def fill(memory: ReplayMemory, producer: Producer, rows: int) -> None:
    """Stores at least that many rows, or as many as there is room for."""
    wanted = min(rows, memory.capacity) + producer.pending_rows
    for _ in range(math.ceil(wanted / (FILL_TIMES * producer.num_streams))):
        memory.insert(PRODUCER, producer.block(FILL_TIMES))


def measure(flags: argparse.Namespace) -> list[Record]:
    """One record; the calls go on for `flags.secs` of wall time."""
    if flags.rows < 1:
        raise ConfigError(f"--rows: expected at least 1, got {flags.rows}")
    agent = configured.read_agent(flags)
    spec, replay, acting = agent.environment_spec(), agent.replay, agent.acting
    memory = agent.memory_factory(spec=spec, capacity=replay.capacity, seed=0)
    producer = Producer(spec, agent.num_envs, acting.n_step)
    fill(memory, producer, flags.rows)
    costs, random = CallCosts(), np.random.default_rng(1)
    block_rows, bundle_rows = acting.block_length * agent.num_envs, replay.bundle_rows
    sample = partial(memory.sample, replay.batches_per_message, replay.batch_size)
    end, rounds = time.monotonic() + flags.secs, 0
    while rounds < flags.repeats or time.monotonic() < end:
        insert = partial(memory.insert, PRODUCER, producer.block(acting.block_length))
        costs.call("insert", block_rows, insert)
        ids = costs.call("sample", bundle_rows, sample).id
        new = random.random(bundle_rows, np.float32) + np.float32(0.1)
        costs.call("update", bundle_rows, partial(memory.update, ids, new))
        rounds += 1
    record = {
        "part": "replaying",
        "memory": type(memory).__name__,
        "size": memory.size,
        **{f"{name}_cpu_us": cost for name, cost in costs.medians_us().items()},
        "bytes_per_transition": memory.bytes_per_transition,
    }
    return [rounded(record)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = configured.parser(__doc__, secs=5.0)
    parser.add_argument(
        "--rows", type=int, default=100_000, help="stored first, default 100,000"
    )
    configured.print_measured("replaying", parser.parse_args(arguments), measure)


if __name__ == "__main__":
    main()
