"""The final evaluation: greedy episodes of the best and of the newest checkpoint."""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.description import Task, task_environment
from launch.processes import Events, Processes, SignalReceived
from launch.summary import failure_report

EVALUATE = (sys.executable, "-m", "distrl.evaluate")
NUM_EPISODES = 100


class EvaluationFailed(Exception):
    """The final evaluation has no result, for the reason given."""


class EvaluationStopped(EvaluationFailed):
    """Because somebody asked the launcher to end."""


def evaluate(
    run_dir: Path,
    seed: int,
    events: Events,
    max_secs: float,
    program: tuple[str, ...] = EVALUATE,
) -> dict[str, Any]:
    """`final_evaluation` (of the best checkpoint) and `final_evaluation_newest`.

    Both are played at the same time. Without a best checkpoint the newest one stands
    in. Raises EvaluationFailed.
    """
    has_best = (run_dir / "checkpoints" / "best").exists()
    checkpoints = ("newest", "best") if has_best else ("newest",)
    tasks = [
        Task(
            "evaluation",
            index,
            (
                *program,
                f"--run_dir={run_dir}",
                f"--checkpoint={checkpoint}",
                f"--episodes={NUM_EPISODES}",
                f"--seed={seed}",
            ),
            task_environment(sees_gpus=False),
        )
        for index, checkpoint in enumerate(checkpoints)
    ]
    logs = run_dir / "logs"
    with Processes(tasks, logs, events) as processes:
        processes.start()
        _wait_for_all(tasks, logs, events, max_secs)
    results = [_result_line(logs / task.log_name) for task in tasks]
    return {
        "final_evaluation": results[-1],
        "final_evaluation_newest": results[0],
    }


def _wait_for_all(
    tasks: Sequence[Task], logs: Path, events: Events, max_secs: float
) -> None:
    """Raises EvaluationFailed unless all tasks exit with 0 in time."""
    deadline = time.monotonic() + max_secs
    ended = 0
    while ended < len(tasks):
        try:
            event = events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise EvaluationFailed(f"no end within {max_secs:.0f} s") from None
        if isinstance(event, SignalReceived):
            raise EvaluationStopped("stopped")
        if event.exit_code:
            raise EvaluationFailed(failure_report(event, logs))
        ended += 1


def _result_line(log: Path) -> dict[str, Any]:
    """The JSON object that an evaluation printed, among what it logged."""
    for line in reversed(log.read_text(errors="replace").splitlines()):
        with contextlib.suppress(json.JSONDecodeError):
            if isinstance(result := json.loads(line), dict):
                return result
    raise EvaluationFailed(f"{log}: expected a line of JSON, found none")
