"""Whole runs for the benchmark programs: ours by the launcher, and those of peers."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import distrl
from distrl.benchmark.measuring import Record, child, json_lines
from distrl.benchmark.tree_cpu import TreeCpu

JOBS = ("actor", "memory", "learner", "ps")
NEVER_SECS = 1e9
_LAUNCHER = "launch.local"
_SAMPLE_SECS = 0.5  # between two looks at the CPU
_SPARE_SECS = 180.0  # for the start of a peer
_TAIL_BYTES = 1 << 16  # a line is much shorter


class WholeRun(NamedTuple):
    summary: Record
    cpu: TreeCpu  # of the launcher and all tasks


def ends(max_seconds: float, target_return: float | None = None) -> list[str]:
    """The lines of gin by which a run ends at these conditions alone."""
    return [
        "StopConditions.max_env_steps = None",
        "StopConditions.max_learner_steps = None",
        f"StopConditions.target_return = {target_return}",
        f"StopConditions.max_seconds = {max_seconds}",
    ]


def whole_run(
    config: str,
    bindings: Sequence[str],
    num_actors: int,
    run_dir: pathlib.Path,
    seed: int | None = None,
) -> WholeRun:
    """A run on this machine. Raises RuntimeError when it fails."""
    arguments = [_LAUNCHER, config, f"--run_dir={run_dir}"]
    arguments += ["--no_final_evaluation", f"--num_actors={num_actors}"]
    arguments += [] if seed is None else [f"--seed={seed}"]
    arguments += [f"--gin_binding={binding}" for binding in bindings]
    with child(arguments) as process, TreeCpu(process.pid, _SAMPLE_SECS) as cpu:
        for line in process.stdout or ():
            print(line, end="", file=sys.stderr, flush=True)
        process.wait()
    if process.returncode:
        raise RuntimeError(f"the run failed with exit code {process.returncode}")
    return WholeRun(json.loads((run_dir / "summary.json").read_text()), cpu)


def task_lines(run_dir: pathlib.Path, task: str) -> list[Record]:
    """What a task, such as "ps-0", wrote about itself once a second."""
    return json_lines((run_dir / "metrics" / f"{task}.jsonl").read_text())


def newest_line(run_dir: pathlib.Path, task: str, since: float) -> Record | None:
    """The last whole one that it wrote since then (unix time)."""
    path = run_dir / "metrics" / f"{task}.jsonl"
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().split(b"\n")[:-1]
    line = json.loads(lines[-1]) if lines else None
    return line if line and line["time"] >= since else None


def running_lines(run_dir: pathlib.Path) -> list[Record]:
    """Status lines of ps 0 from while the run was running."""
    lines = task_lines(run_dir, "ps-0")
    return [line for line in lines if line["phase"] == "running"]


def wait_fractions(lines: Sequence[Record]) -> dict[str, float]:
    """By job, the mean of these status lines."""
    waits = [line["waits"] for line in lines]
    shares = {job: [w[job] for w in waits if w.get(job) is not None] for job in JOBS}
    return {job: float(np.mean(found)) for job, found in shares.items() if found}


def peer_run(
    python: str, program: str, arguments: Sequence[str], secs: float
) -> tuple[Record, TreeCpu]:
    """The JSON line that a peer program of this package prints at last, and its CPU.

    `python` is the interpreter that has the peer. The program works in a folder that
    is removed, and no process of it stays. Raises RuntimeError when it fails or takes
    far longer than `secs`.
    """
    command = [python, "-m", f"distrl.benchmark.{program}", *arguments]
    with tempfile.TemporaryDirectory(prefix="distrl-peer-") as folder:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_peer_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process, TreeCpu(process.pid, _SAMPLE_SECS) as cpu:
            try:
                text, _ = process.communicate(timeout=4 * secs + _SPARE_SECS)
            except subprocess.TimeoutExpired as error:
                raise RuntimeError(str(error)) from error
            finally:
                cpu.kill()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
    if not (records := json_lines(text)):
        raise RuntimeError(f"{' '.join(command)} printed no record, but {text!r}")
    return records[-1], cpu


def _peer_environment() -> dict[str, str]:
    """Ours, with this package, and with .pyc files: its workers import a lot."""
    root = pathlib.Path(distrl.__file__).parents[1]
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    inherited = {k: v for k, v in os.environ.items() if k not in left_out}
    return {**inherited, "PYTHONPATH": str(root)}
