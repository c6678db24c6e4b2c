"""Runs that are killed whole and resumed, and runs beside others that die."""

from __future__ import annotations

import json
import pathlib
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distrl.benchmark import chaos_cells, chaos_checks
from distrl.benchmark.chaos_cells import FAIL, LEARNING, SHORT, Cell, Conditions
from distrl.benchmark.chaos_faults import KILL, Fault, play
from distrl.benchmark.chaos_run import Ending, LaunchedRun
from distrl.benchmark.measuring import Record

_CHECKPOINT_SECS = 120.0  # until there is a first whole one
_LOOK_SECS = 0.1
#: Of a short run: IMPALA's memories keep nothing in its own configuration.
_REPLAY = {
    "impala": (
        "UnrollBatches.replay_capacity = 1000",
        "UnrollBatches.replay_proportion = 0.5",
    )
}
_RESTORED = re.compile(r"restored .*/(\d+) at step (\d+)")
_SNAPSHOT = re.compile(r"goes on from a snapshot of (\d+) rows")


class Saved(NamedTuple):
    """A checkpoint that a run can be resumed from."""

    learner_steps: int
    env_steps: int
    num_memories: int  # with a snapshot each


def resume(
    agent: str,
    repeat: int,
    conditions: Conditions,
    folder: pathlib.Path,
    learning: bool,
) -> Record:
    """Kills a run with all its tasks at a random moment behind its first checkpoint,
    and goes on with it."""
    mode = LEARNING if learning else SHORT
    cell = Cell(agent, KILL, "all", repeat, mode)
    seed = conditions.seed_of(cell)
    run_dir = chaos_cells.new_folder(folder / f"resume-{cell.name}")
    first, last = chaos_cells.LEARNING_WINDOWS[agent]
    window = (first, last) if learning else (0.0, conditions.secs / 3)
    pause = float(np.random.default_rng(seed).uniform(*window))
    record = {
        "scenario": "resume",
        **cell._asdict(),
        "seed": seed,
        "run_dir": str(run_dir),
    }
    more = () if learning else _REPLAY.get(agent, ())
    arguments = chaos_cells.arguments_of(cell, conditions, seed)
    arguments += [f"--gin_binding={binding}" for binding in more]
    try:
        with LaunchedRun(arguments, run_dir) as run:
            run.wait_until_running()
            _wait_for_checkpoint(run)
            ended = run.wait(pause)
            killed = run.kill()
            complaints = ["fault: the run had ended"] if ended else []
            complaints += [f"left behind: {what}" for what in run.processes_left()]
        saved = newest_saved(run_dir)
        before = Logs(run_dir)
        ending = _resumed(cell, conditions, run_dir)
    except RuntimeError as error:
        return {**record, "complaints": [f"start: {error}"]}
    complaints += check_resumed(cell, ending, saved, before, run_dir, killed)
    record["saved"] = saved._asdict()
    return {**record, **chaos_cells.numbers(ending), "complaints": complaints}


def _resumed(cell: Cell, conditions: Conditions, run_dir: pathlib.Path) -> Ending:
    """The second life, under the configuration that the first one has left."""
    flags = chaos_cells.policy_flags(cell.policy)
    flags += ["--no_final_evaluation"] * (cell.mode == SHORT)
    with LaunchedRun(["--resume", *flags], run_dir) as run:
        run.wait_until_running()
        return run.finish(chaos_cells.limit_secs(cell, conditions))


def _wait_for_checkpoint(run: LaunchedRun) -> None:
    deadline = time.monotonic() + _CHECKPOINT_SECS
    while newest_entry(run.run_dir) is None:
        if run.wait(_LOOK_SECS) or time.monotonic() > deadline:
            raise RuntimeError(f"{run.run_dir}: no whole checkpoint")


def newest_entry(run_dir: pathlib.Path) -> Record | None:
    """Of the manifest, the newest one that is whole."""
    path = run_dir / "checkpoints" / "manifest.json"
    entries = json.loads(path.read_text())["entries"] if path.exists() else []
    whole = [e for e in entries if len(e["memories"]) == e["num_memories"]]
    return max(whole, key=lambda e: e["checkpoint_id"], default=None)


def newest_saved(run_dir: pathlib.Path) -> Saved:
    """What the newest whole checkpoint of a run knows. Raises RuntimeError when there
    is none."""
    entry = newest_entry(run_dir)
    if entry is None:
        raise RuntimeError(f"{run_dir}: no whole checkpoint")
    folder = run_dir / "checkpoints" / f"{entry['learner']:012d}"
    counters = json.loads((folder / "counters.json").read_text())["counters"]
    accounts = (counters["run"] or {"books": {"accounts": {}}})["books"]["accounts"]
    env_steps = sum(a["totals"].get("env_steps", 0) for a in accounts.values())
    return Saved(counters["learner_steps"], int(env_steps), entry["num_memories"])


class Logs:
    """What the tasks of a run say from now on."""

    def __init__(self, run_dir: pathlib.Path):
        self._folder = run_dir / "logs"
        self._sizes = {p.name: p.stat().st_size for p in self._folder.glob("*.log")}

    def text(self, task: str) -> str:
        """Of a task such as "memory-0"."""
        path = self._folder / f"{task}.log"
        if not path.exists():
            return ""
        return path.read_bytes()[self._sizes.get(path.name, 0) :].decode()


def check_resumed(
    cell: Cell,
    ending: Ending,
    saved: Saved,
    logs: Logs,
    run_dir: pathlib.Path,
    killed: float,
) -> Iterator[str]:
    """The second life went on where the checkpoint was, and to the goal."""
    yield from chaos_checks.check_survived(ending, [], 0.0)
    yield from chaos_checks.check_ledger(ending, run_dir, killed)
    if cell.mode == LEARNING:
        yield from chaos_checks.check_learned(ending)
    restored = _RESTORED.search(logs.text("learner-0"))
    if restored is None:
        yield "learner: it has restored nothing"
    elif int(restored[2]) != saved.learner_steps:
        yield f"learner: went on at {restored[2]}, not at {saved.learner_steps}"
    for index in range(saved.num_memories):
        found = _SNAPSHOT.search(logs.text(f"memory-{index}"))
        empty = cell.agent in _REPLAY and cell.mode == LEARNING
        if found is None or not (int(found[1]) or empty):
            yield f"memory: memory {index} has restored nothing"
    for key in ("learner_steps", "env_steps"):
        reached = (ending.summary or {}).get(key, 0)
        if reached <= getattr(saved, key):
            yield f"counters: {key} {reached} do not go on from {getattr(saved, key)}"


def side_by_side(
    agent: str,
    repeat: int,
    conditions: Conditions,
    folder: pathlib.Path,
    learning: bool,
) -> Record:
    """Two runs, of which one must not survive that a task is killed; the other must
    not notice."""
    mode = LEARNING if learning else SHORT
    cells = [
        Cell(agent, KILL, "side", repeat, mode, FAIL),
        Cell(agent, KILL, "other", repeat, mode),
    ]
    seeds = [conditions.seed_of(cell) for cell in cells]
    run_dirs = [chaos_cells.new_folder(folder / f"side-{c.name}") for c in cells]
    job = str(np.random.default_rng(seeds[0]).choice(chaos_cells.JOBS))
    fault = Fault(conditions.secs / 10, KILL, job, 0)
    record = {
        "scenario": "side_by_side",
        **cells[1]._asdict(),
        "job": job,
        "run_dir": str(run_dirs[1]),
    }
    dying, other = (
        chaos_cells.arguments_of(cell, conditions, seed)
        for cell, seed in zip(cells, seeds, strict=True)
    )
    try:
        with LaunchedRun(other, run_dirs[1]) as bystander:
            with LaunchedRun(dying, run_dirs[0]) as victim:
                victim.wait_until_running()
                bystander.wait_until_running()
                deliveries = play([fault], victim)
                dead = victim.finish(chaos_cells.limit_secs(cells[0], conditions))
            ending = bystander.finish(chaos_cells.limit_secs(cells[1], conditions))
    except RuntimeError as error:
        return {**record, "complaints": [f"start: {error}"]}
    complaints = list(chaos_checks.check_ended(dead, deliveries[0]))
    if ending.time < dead.time:
        complaints.append("fault: the other run had ended before")
    complaints += chaos_checks.check_survived(ending, [], conditions.heartbeat_secs)
    complaints += chaos_checks.check_ledger(ending, run_dirs[1])
    return {**record, **chaos_cells.numbers(ending), "complaints": complaints}
