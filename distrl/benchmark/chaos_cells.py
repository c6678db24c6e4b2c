"""One cell of the matrix: an agent, a fault, a job; one run, checked."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import time
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distrl.benchmark import chaos_checks, whole_runs
from distrl.benchmark.chaos_faults import DELAY_SECS, JOIN, Delivery, draw, play
from distrl.benchmark.chaos_run import Ending, LaunchedRun
from distrl.benchmark.measuring import Record

AGENTS = ("apex", "ppo", "impala")
JOBS = ("actor", "memory", "learner", "ps")
SHORT, LEARNING = "short", "learning"
RESTART, FAIL = "restart", "fail"
RESTARTS = {"actor": 20, **dict.fromkeys(JOBS[1:], 5)}
NUM_ACTORS = 2
#: Seconds, since a learning run is running, within which its fault falls: it must not
#: have reached its goal by then.
LEARNING_WINDOWS = {"apex": (2.0, 12.0), "ppo": (1.0, 5.0), "impala": (1.0, 10.0)}
_LEARNING_SECS = 1500.0  # beyond which a learning run has failed
_FAREWELL_SECS = 180.0  # beyond which another run has


class Cell(NamedTuple):
    agent: str
    fault: str
    job: str
    repeat: int = 0
    mode: str = SHORT
    policy: str = RESTART

    @property
    def name(self) -> str:
        return "-".join(map(str, self))


@dataclasses.dataclass(frozen=True)
class Conditions:
    """How the runs are, whatever happens to them. Raises ValueError."""

    secs: float = 45.0  # of a short run; the fault falls into the first third
    heartbeat_secs: float = 6.0  # without beats until a task is lost
    stop_secs: float = 20.0  # from SIGSTOP to SIGCONT
    seed: int = 0
    bindings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.secs <= 0:
            raise ValueError(f"expected secs > 0, got {self.secs}")
        if self.heartbeat_secs < 5:
            raise ValueError(
                f"expected heartbeat_secs >= 5, got {self.heartbeat_secs}: a delay of "
                f"{DELAY_SECS[1]:g} s must not look like a loss"
            )
        if self.stop_secs <= self.heartbeat_secs:
            raise ValueError(
                f"expected stop_secs > heartbeat_secs, got {self.stop_secs} and "
                f"{self.heartbeat_secs}"
            )

    def seed_of(self, cell: Cell) -> int:
        """Another one for each cell, the same each time."""
        key = (self.seed, zlib.crc32(cell.name.encode()))
        return int(np.random.SeedSequence(key).generate_state(1)[0] >> 1)


def arguments_of(cell: Cell, conditions: Conditions, seed: int) -> list[str]:
    """The launcher's, but for the folder."""
    arguments = [f"configs/{cell.agent}/cartpole.gin", f"--seed={seed}"]
    arguments += [f"--num_actors={NUM_ACTORS}", *policy_flags(cell.policy)]
    bindings = [
        "Run.trace_rows = True",
        f"Timeouts.heartbeat_secs = {conditions.heartbeat_secs}",
        "Learning.checkpoint_period_secs = 4.0",
    ]
    if cell.mode == SHORT:
        arguments.append("--no_final_evaluation")
        bindings += whole_runs.ends(conditions.secs)
    bindings += conditions.bindings
    return [*arguments, *(f"--gin_binding={binding}" for binding in bindings)]


def policy_flags(policy: str) -> list[str]:
    """Of the launcher, for all jobs: "fail", or "restart" as often as by default."""
    texts = {
        job: f"restart({n})" if policy == RESTART else policy
        for job, n in RESTARTS.items()
    }
    return [f"--on_failure={job}={text}" for job, text in texts.items()]


def window_of(cell: Cell, conditions: Conditions) -> tuple[float, float]:
    """When the fault falls, in s since the run is running."""
    if cell.mode == LEARNING:
        return LEARNING_WINDOWS[cell.agent]
    return 0.0, conditions.secs / 3


def limit_secs(cell: Cell, conditions: Conditions) -> float:
    """How long a run may take after its fault."""
    if cell.policy == FAIL:
        return 2 * chaos_checks.GONE_SECS
    secs = _LEARNING_SECS if cell.mode == LEARNING else conditions.secs
    return secs + conditions.stop_secs + _FAREWELL_SECS


def run_cell(cell: Cell, conditions: Conditions, folder: pathlib.Path) -> Record:
    """What came of it: the fields of the cell, when what was done, numbers of the run,
    and `complaints`, of which a good cell has none. The run's folder, in `folder`, and
    what the launcher said remain."""
    seed, begin = conditions.seed_of(cell), time.time()
    run_dir = new_folder(folder / cell.name)
    record = {**cell._asdict(), "seed": seed, "run_dir": str(run_dir)}
    first = NUM_ACTORS if cell.fault == JOIN else 0
    number = NUM_ACTORS if cell.job == "actor" and cell.fault != JOIN else 1
    tasks = [(cell.job, index) for index in range(first, first + number)]
    window = window_of(cell, conditions)
    schedule = draw(seed, [cell.fault], tasks, window, stop_secs=conditions.stop_secs)
    try:
        with LaunchedRun(arguments_of(cell, conditions, seed), run_dir) as run:
            run.wait_until_running()
            deliveries = play(schedule, run)
            ending = run.finish(limit_secs(cell, conditions))
    except RuntimeError as error:
        return {**record, "complaints": [f"start: {error}"]}
    complaints = list(_complaints(cell, conditions, ending, deliveries, run_dir))
    return {
        **record,
        "faults": [[d.fault.task, d.fault.after_secs, d.note] for d in deliveries],
        **numbers(ending),
        "exit_code": ending.exit_code,
        "secs_after_fault": round(ending.time - deliveries[0].time, 1),
        "secs": round(time.time() - begin, 1),
        "complaints": complaints,
    }


def _complaints(
    cell: Cell,
    conditions: Conditions,
    ending: Ending,
    deliveries: list[Delivery],
    run_dir: pathlib.Path,
) -> Iterator[str]:
    if cell.policy == FAIL:
        yield from chaos_checks.check_ended(ending, deliveries[0])
        return
    heartbeat_secs = conditions.heartbeat_secs
    yield from chaos_checks.check_survived(ending, deliveries, heartbeat_secs)
    yield from chaos_checks.check_ledger(ending, run_dir)
    if cell.mode == LEARNING:
        yield from chaos_checks.check_learned(ending)


def numbers(ending: Ending) -> Record:
    """What is worth keeping of a summary."""
    summary = ending.summary or {}
    channels = summary.get("channels") or {}
    return {
        **{k: summary.get(k) for k in ("running_secs", "env_steps", "learner_steps")},
        "stop_reason": summary.get("stop_reason"),
        "lost": {k: rows["lost"] for k, rows in channels.items() if rows["sent"]},
        "mean_return": (summary.get("final_evaluation") or {}).get("mean_return"),
        "farewell_secs": summary.get("farewell_secs"),
    }


def new_folder(run_dir: pathlib.Path) -> pathlib.Path:
    """Where a run may be: nothing is there any more."""
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.with_name(f"{run_dir.name}.log").unlink(missing_ok=True)
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    return run_dir
