"""A long run whose actors come and go, and what grows meanwhile in its tasks."""

from __future__ import annotations

import json
import pathlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import psutil

from distrl.benchmark import chaos_cells, chaos_checks, growth, whole_runs
from distrl.benchmark.chaos_cells import Cell, Conditions
from distrl.benchmark.chaos_faults import JOIN, LEAVE, Fault, deliver
from distrl.benchmark.chaos_run import Ending, LaunchedRun
from distrl.benchmark.measuring import Record, rounded, table

NUM_ELASTIC = 4  # actors that come and go, beside the launcher's one that stays
STAY_SECS = AWAY_SECS = (10.0, 60.0)
SAMPLE_SECS = 5.0
QUIET_SECS = 60.0  # before the end nobody comes, who needs time to start, or goes


def comings_and_goings(seed: int, secs: float) -> list[Fault]:
    """For each elastic actor JOIN and LEAVE in turn, in order of time."""
    faults = []
    for child, index in zip(
        np.random.SeedSequence(seed).spawn(NUM_ELASTIC),
        range(1, NUM_ELASTIC + 1),
        strict=True,
    ):
        random = np.random.default_rng(child)
        kind, when = JOIN, float(random.uniform(0.0, AWAY_SECS[0]))
        while when < secs - QUIET_SECS:
            faults.append(Fault(round(when, 3), kind, "actor", index))
            there = kind == JOIN
            when += float(random.uniform(*(STAY_SECS if there else AWAY_SECS)))
            kind = LEAVE if there else JOIN
    return sorted(faults)


def soak(
    agent: str,
    conditions: Conditions,
    minutes: float,
    folder: pathlib.Path,
    out: pathlib.Path | None = None,
) -> Record:
    """Prints a table of what has grown; `out` gets a JSON line a sample of a task."""
    cell = Cell(agent, JOIN, "actor", mode="soak")
    seed, secs = conditions.seed_of(cell), 60 * minutes
    run_dir = chaos_cells.new_folder(folder / cell.name)
    out = out or folder / f"{cell.name}.jsonl"
    record = {"scenario": "soak", **cell._asdict(), "run_dir": str(run_dir)}
    arguments = chaos_cells.arguments_of(cell, conditions, seed)
    arguments += [f"--gin_binding={line}" for line in whole_runs.ends(secs)]
    arguments += ["--num_actors=1", "--no_final_evaluation"]
    try:
        with LaunchedRun(arguments, run_dir) as run:
            run.wait_until_running()
            limit = secs + chaos_cells.limit_secs(cell, conditions)
            samples = list(_watch(run, comings_and_goings(seed, secs), out, limit))
            ending = run.finish(0.0)
    except RuntimeError as error:
        return {**record, "complaints": [f"start: {error}"]}
    grown = growths(samples)
    print_growth(grown)
    complaints = [*_check(ending, run_dir), *not_flat(grown)]
    lives = sum(map(len, ending.by_hand.values()))
    numbers = chaos_cells.numbers(ending)
    return {**record, "actors_by_hand": lives, **numbers, "complaints": complaints}


def _watch(
    run: LaunchedRun, schedule: Sequence[Fault], out: pathlib.Path, limit: float
) -> Iterator[Record]:
    """Lets actors come and go, and samples all tasks, until the launcher ends, at
    most `limit` s."""
    begin, faults = time.monotonic(), list(schedule)
    out.parent.mkdir(parents=True, exist_ok=True)
    next_sample = 0.0
    with out.open("a") as file:
        while time.monotonic() - begin < limit:
            due = min([next_sample, *(fault.after_secs for fault in faults[:1])])
            if run.wait(max(0.0, begin + due - time.monotonic())):
                return
            if due == next_sample:
                next_sample += SAMPLE_SECS
                now = time.monotonic() - begin
                for record in sample_all(run.tasks(), run.run_dir, now):
                    file.write(json.dumps(record) + "\n")
                    file.flush()
                    yield record
            else:
                deliver(faults.pop(0), run)


def sample_all(
    tasks: Mapping[str, psutil.Process], run_dir: pathlib.Path, now: float
) -> Iterator[Record]:
    """A record for each task that is there and has written a line about itself."""
    actors = sum(name.startswith("actor/") for name in tasks)
    for name, process in tasks.items():
        try:
            found = growth.sample(process)
            line = whole_runs.newest_line(
                run_dir, name.replace("/", "-"), process.create_time()
            )
        except psutil.Error:  # it has just left
            continue
        if line is None:
            continue
        found["graph_operations"] = line.get("gauges", line)["graph_operations"]
        who = {"task": name, "pid": process.pid, "actors": actors}
        yield {"time": round(now, 2), **who, **found}


def growths(samples: Sequence[Record]) -> list[growth.Growth]:
    """Of every process that was there from the first to the last third."""
    by_process = defaultdict(list)
    for record in samples:
        by_process[record["task"], record["pid"]].append(record)
    end = max((record["time"] for record in samples), default=0.0)
    ends = [own[-1]["time"] for (t, _), own in by_process.items() if t[:5] == "actor"]
    left = sum(end / 3 <= when <= end * 0.9 for when in ends)
    found = []
    for (task, _), own in by_process.items():
        stays = own[0]["time"] < end / 3 and own[-1]["time"] > end * 0.9
        if stays and len(own) >= 3:
            found += growth.growth_of(task, own, growth.CLIENT_MB * left)
    return found


def print_growth(grown: Sequence[growth.Growth]) -> None:
    """A table: of each task and quantity the slope and the difference."""
    rows = [
        rounded(
            {
                "task": g.task,
                "of": growth.QUANTITIES[g.quantity],
                "an hour": g.per_hour,
                "difference": g.difference,
                "at last": g.last,
                "flat": "flat" if g.flat else "NOT FLAT",
            },
            3,
        )
        for g in grown
    ]
    print(table(rows) if rows else "too few samples", end="\n\n")


def not_flat(grown: Sequence[growth.Growth]) -> Iterator[str]:
    if not grown:
        yield "growth: too few samples"
    for g in grown:
        if not g.flat:
            what = f"{g.difference:.2f} {growth.QUANTITIES[g.quantity]}"
            yield f"growth: {g.task} by {what}, {g.per_hour:.1f} an hour"


def _check(ending: Ending, run_dir: pathlib.Path) -> Iterator[str]:
    yield from chaos_checks.check_survived(ending, [], 0.0)
    yield from chaos_checks.check_ledger(ending, run_dir)
