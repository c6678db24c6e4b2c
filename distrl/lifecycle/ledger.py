"""The part of a run's summary that comes from the run state: what was counted."""

from __future__ import annotations

import json
import os
import pathlib
import time
from typing import Any

from distrl.cluster.spec import JOBS
from distrl.lifecycle.view import View

CHANNELS = ("experience", "batches", "priorities", "observations", "actions")
_COUNTS = ("sent", "received", "lost", "duplicates")


def ledger(view: View, wall_secs: float) -> dict[str, Any]:
    """The counts of a run whose actors and memories are gone. Channels count rows."""
    totals = {key: round(value, 3) for key, value in view.totals.items()}

    def count(key: str) -> int:
        return int(totals.get(key, 0))

    running = max(view.running_secs, 1e-9)
    return {
        "run_id": view.run_id,
        "stop_reason": view.stop_reason,
        "stop_time": view.stop_time,
        "env_steps": count("env_steps"),
        "unfinished_steps": count("unfinished_steps"),
        "episodes": count("episodes"),
        "environment_restarts": count("environment_restarts"),
        "learner_steps": count("learner_steps"),
        "wall_secs": round(wall_secs, 2),
        "running_secs": round(view.running_secs, 2),
        "env_steps_per_sec": round(count("env_steps") / running, 1),
        "learner_steps_per_sec": round(count("learner_steps") / running, 1),
        "samples_per_insert": _ratio(totals),
        "failures": {job: view.failures.get(job, 0) for job in JOBS},
        "channels": {
            name: {key: count(f"{key}/{name}") for key in _COUNTS} for name in CHANNELS
        },
        "rows": {
            key: count(key)
            for key in ("inserted", "sampled", "trained", "orphans", "stale_updates")
        },
        "rounds": {
            "rounds": count("rounds"),
            "stale_rows": count("stale_rows"),
            "secs": round(totals.get("round_secs", 0.0), 2),
            "wait_secs": round(totals.get("round_wait_secs", 0.0), 2),
            "overhead_secs": round(totals.get("round_overhead_secs", 0.0), 2),
        },
        "replay": {
            "capacity": count("replay_capacity"),
            "bytes": count("replay_bytes"),
            "bytes_per_transition": round(
                totals.get("replay_bytes", 0) / max(1, count("replay_capacity")), 1
            ),
        },
        "cpu_secs": {
            job: {
                "start_up": round(sums.get("startup_cpu_secs", 0.0), 2),
                "steady": round(
                    sums.get("cpu_secs", 0.0) - sums.get("startup_cpu_secs", 0.0), 2
                ),
            }
            for job, sums in view.job_totals.items()
        },
    }


def _ratio(totals: dict[str, float]) -> float | None:
    """Rows sampled for each row inserted behind the memories' minimum."""
    inserts = totals.get("inserted", 0) - totals.get("min_size_to_sample", 0)
    return round(totals.get("sampled", 0) / inserts, 3) if inserts > 0 else None


def write_ledger(path: pathlib.Path, view: View, started: float) -> None:
    """Writes `ledger` as JSON, whole or not at all. `started` is when, by
    `time.monotonic()`. Raises OSError, which names the path."""
    text = json.dumps(ledger(view, time.monotonic() - started), indent=2)
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_text(text + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
