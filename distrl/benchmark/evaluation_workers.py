"""How much faster more workers evaluate, and whether they play the same episodes.

    python -m distrl.benchmark.evaluation_workers --run_dir=RUN --workers=1,2

Runs `distrl.evaluate` as it is, start-up and all, with each number of workers in turn,
`--repeats` times; prints a table of the medians and JSON lines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from distrl.benchmark.measuring import Record, table

_LIMIT_SECS = 3600.0  # of one evaluation


def evaluated(arguments: Sequence[str], workers: int) -> tuple[float, Record]:
    """The seconds that an evaluation takes, and what it prints. Raises RuntimeError
    when it fails."""
    command = [sys.executable, "-m", "distrl.evaluate", *arguments]
    began = time.monotonic()
    done = subprocess.run(
        [*command, f"--num_workers={workers}"],
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECS,
    )
    if done.returncode:
        raise RuntimeError(f"{command} failed:\n{done.stderr}")
    return time.monotonic() - began, json.loads(done.stdout)


def compare(
    arguments: Sequence[str], numbers: Sequence[int], repeats: int
) -> list[Record]:
    """A record for each number of workers: median seconds, how many times as fast as
    the first, and whether all returns are the first's."""
    secs: dict[int, list[float]] = {number: [] for number in numbers}
    returns: dict[int, list[float]] = {}
    for _ in range(repeats):
        for number in numbers:
            took, result = evaluated(arguments, number)
            secs[number].append(took)
            returns[number] = result["returns"]
    first = numbers[0]
    ratios = {
        number: [a / b for a, b in zip(secs[first], secs[number], strict=True)]
        for number in numbers
    }
    return [
        {
            "workers": number,
            "secs": round(statistics.median(secs[number]), 2),
            "times_as_fast": round(statistics.median(ratios[number]), 3),
            "mean_return": round(statistics.mean(returns[number]), 3),
            "same_returns": returns[number] == returns[first],
        }
        for number in numbers
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run_dir", required=True)
    parser.add_argument("--checkpoint", default="newest")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", default="1,2", help="numbers, with commas between")
    parser.add_argument("--repeats", type=int, default=3)
    flags = parser.parse_args()
    numbers = [int(word) for word in flags.workers.split(",")]
    names = ("run_dir", "checkpoint", "episodes", "seed")
    arguments = [f"--{name}={getattr(flags, name)}" for name in names]
    records = compare(arguments, numbers, flags.repeats)
    print(table(records), end="\n\n")
    for record in records:
        print(json.dumps(record))


if __name__ == "__main__":
    main()
