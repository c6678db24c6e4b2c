"""What the benchmark programs share: clocks, medians, child processes, tables."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import distrl

Record = dict[str, Any]
#: CPU time in ns, by the part of the work that took it; only grows.
Clocks = Callable[[], Mapping[str, int]]

_END_SECS = 20.0  # for a child that was asked to end


def process_clock() -> Mapping[str, int]:
    """The CPU time of this process, all threads."""
    return {"cpu": time.process_time_ns()}


class SectionClock:
    """CPU time of the sections of a loop, and of the whole process as "cpu".

        clock.start()
        decide()
        clock.end("inference")
        step()
        clock.end("environment")

    A reading costs about half a µs; it is part of the section that it ends.
    """

    def __init__(self) -> None:
        self._totals: defaultdict[str, int] = defaultdict(int)
        self._last = 0

    def start(self) -> None:
        self._last = time.process_time_ns()

    def end(self, section: str) -> None:
        """Adds what has passed since the last `start` or `end` to `section`."""
        now = time.process_time_ns()
        self._totals[section] += now - self._last
        self._last = now

    def __call__(self) -> Mapping[str, int]:
        return {**self._totals, **process_clock()}


def medians(
    work: Callable[[], int],
    secs: float,
    repeats: int,
    clocks: Clocks = process_clock,
) -> dict[str, float]:
    """Units a second of wall time as "per_sec", and CPU ms a unit for each clock.

    `work()` does some and returns how many units it was. The repeats share `secs`;
    another one ahead of them warms up. Raises ValueError unless there is time for them.
    """
    check_repeats(secs, repeats)
    rates: defaultdict[str, list[float]] = defaultdict(list)
    for repeat in range(repeats + 1):
        units, start, before = 0, time.perf_counter(), clocks()
        end = start + secs / repeats
        while not units or time.perf_counter() < end:
            units += work()
        wall = time.perf_counter() - start
        if repeat:
            rates["per_sec"].append(units / wall)
            for name, total in clocks().items():
                rates[name].append((total - before.get(name, 0)) / 1e6 / units)
    return {name: float(np.median(values)) for name, values in rates.items()}


def median_cpu_ms(calls: Sequence[Callable[[], Any]]) -> float:
    """The median CPU time of these calls, in ms."""
    costs = []
    for call in calls:
        start = time.process_time_ns()
        call()
        costs.append(time.process_time_ns() - start)
    return float(np.median(costs)) / 1e6


def check_repeats(secs: float, repeats: int) -> None:
    """Raises ValueError unless both are above 0."""
    if not secs > 0 or repeats < 1:
        raise ValueError(f"cannot measure {repeats} repeats in {secs} s")


def rounded(record: Mapping[str, Any], digits: int = 4) -> Record:
    """The record with its floats cut to so many significant digits, nested ones too."""

    def short(value: Any) -> Any:
        if isinstance(value, Mapping):
            return rounded(value, digits)
        return float(f"{value:.{digits}g}") if isinstance(value, float) else value

    return {key: short(value) for key, value in record.items()}


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Records with equal keys as aligned columns."""
    lines = [list(records[0]), *([_cell(v) for v in r.values()] for r in records)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "-" if value is None else str(value)


def print_records(records: Sequence[Record]) -> None:
    """A table for people, then a JSON line a record."""
    print(table(records))
    for record in records:
        print(json.dumps(record))


@contextlib.contextmanager
def child(arguments: Sequence[str]) -> Iterator[subprocess.Popen]:
    """`python -m <arguments>` of this repository as a process that ends with the block.

    Its standard output is a pipe, its standard error ours. What still runs at the end
    of the block gets SIGTERM, a while later a second one (at which the launcher ends at
    once, not in order), and then SIGKILL.
    """
    root = pathlib.Path(distrl.__file__).parents[1]
    paths = filter(None, [str(root), os.environ.get("PYTHONPATH")])
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
        },
    )
    with process:
        try:
            yield process
        finally:
            for end in (process.terminate, process.terminate, process.kill):
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECS)
                    break


def output_of(arguments: Sequence[str]) -> str:
    """What a program of this repository prints. Raises RuntimeError when it fails."""
    with child(arguments) as process:
        text, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(
            f"{' '.join(arguments)}: exit code {process.returncode}\n{text}"
        )
    return text


def json_lines(text: str) -> list[Record]:
    """The records among the lines that a benchmark program has printed."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def end_on_sigterm() -> None:
    """SIGTERM ends this program the way an exception does, with all clean-up."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
