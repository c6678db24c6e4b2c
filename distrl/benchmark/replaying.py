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
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distrl.benchmark import configured
from distrl.benchmark.measuring import Record, check_repeats, rounded
from distrl.benchmark.memories import Producer
from distrl.core.errors import ConfigError
from distrl.memories.replay_memory import ReplayMemory

_FILL_TIMES = 64  # of a block while the memory is filled


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
    """Stores rows until there are that many, at most the capacity."""
    while memory.size < min(rows, memory.capacity):
        before = memory.inserted
        memory.insert("actor/0", producer.block(_FILL_TIMES))
        if memory.inserted == before:
            raise ValueError(f"the memory stays at {memory.size} of {rows} rows")


def measure(flags: argparse.Namespace) -> list[Record]:
    """One record; the calls go on for `flags.secs` of wall time."""
    check_repeats(flags.secs, flags.repeats)
    agent = configured.read_agent(flags)
    spec, replay, acting = agent.environment_spec(), agent.replay, agent.acting
    if flags.rows < 1:
        raise ConfigError(f"--rows: expected at least 1, got {flags.rows}")
    memory = agent.memory_factory(spec=spec, capacity=replay.capacity, seed=0)
    producer = Producer(spec, agent.num_envs, acting.n_step)
    fill(memory, producer, flags.rows)
    costs, random = CallCosts(), np.random.default_rng(1)
    block_rows, bundle_rows = acting.block_length * agent.num_envs, replay.bundle_rows
    end, rounds = time.monotonic() + flags.secs, 0
    while rounds < flags.repeats or time.monotonic() < end:
        block = producer.block(acting.block_length)
        costs.call("insert", block_rows, lambda b=block: memory.insert("actor/0", b))
        batch = costs.call(
            "sample",
            bundle_rows,
            lambda: memory.sample(replay.batches_per_message, replay.batch_size),
        )
        new = random.random(bundle_rows, np.float32) + np.float32(0.1)
        ids = batch.id
        costs.call("update", bundle_rows, lambda i=ids, n=new: memory.update(i, n))
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
