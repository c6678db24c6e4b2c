"""summary.json, completed by what only the launcher knows; and what it reports."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.processes import TaskExit
from launch.watch import describe_exit

NUM_LOG_LINES = 60
LOG_TAIL_BYTES = 64 * 1024


def complete_summary(
    path: Path, exits: Sequence[TaskExit], additions: dict[str, Any]
) -> dict[str, Any]:
    """The whole summary, also on disk: learner 0's part, exit codes, `additions`.

    A task that was started again has the exit code of its last process, and how many
    `restarts` that took. `farewell_secs` goes from the stop condition to the last exit.
    A reader of the file sees the old one or the new one. Raises OSError, or ValueError
    when learner 0's part is no JSON object.
    """
    summary = json.loads(path.read_text())
    if not isinstance(summary, dict):
        raise ValueError(f"{path}: expected a JSON object, got {summary!r}")
    summary["tasks"] = [
        {
            "job": exit.task.job,
            "task": exit.task.index,
            "exit_code": exit.exit_code,
            "restarts": exit.task.restart,
        }
        for exit in sorted(exits, key=lambda exit: (exit.task.job, exit.task.index))
    ]
    if "stop_time" in summary and exits:
        last = max(exit.time for exit in exits)
        summary["farewell_secs"] = round(last - summary["stop_time"], 3)
    summary.update(additions)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(summary, indent=2) + "\n")
    draft.replace(path)
    return summary


def report(summary: dict[str, Any], path: Path) -> str:
    """The closing lines of a run that came to its end."""
    evaluation = summary.get("final_evaluation") or {}
    channels = summary.get("channels") or {}
    lost = ", ".join(f"{name} {rows.get('lost')}" for name, rows in channels.items())
    failures = summary.get("failures") or {}
    failed = ", ".join(f"{job} {n}" for job, n in failures.items() if n)
    rows = {
        "stop reason": summary.get("stop_reason"),
        "env steps": summary.get("env_steps"),
        "env steps/s": summary.get("env_steps_per_sec"),
        "final mean return": evaluation.get("mean_return"),
        "rows lost": lost or None,
        "tasks that failed": failed or None,
        "summary": path,
    }
    known = {name: value for name, value in rows.items() if value is not None}
    return "\n".join(f"{name:<18} {value}" for name, value in known.items())


def failure_report(cause: TaskExit, logs: Path) -> str:
    """Who failed, and what its log says about it."""
    lines = last_lines(logs / cause.task.log_name)
    head = f"{describe_exit(cause)}; the last lines of its log:"
    return "\n".join([head, *lines]) if lines else f"{head} (it is empty)"


def last_lines(path: Path) -> list[str]:
    """At most NUM_LOG_LINES lines from the end of a text file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return text.splitlines()[-NUM_LOG_LINES:]
