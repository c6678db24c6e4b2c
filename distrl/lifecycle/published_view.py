"""What ps 0 tells all tasks about the run."""

from __future__ import annotations

import time
from typing import Any

from distrl.lifecycle.run_state import RUNNING, STARTING, RunState


def published_view(state: RunState, now: float) -> dict[str, Any]:
    """The content of a `View`, JSON. A stop that is due is not in it yet."""
    best_return, best_version = state.books.best
    return {
        "run_id": state.run_id,
        **_stop(state, now),
        "running_secs": state.running_secs(now),
        "near_end": state.stop_is_due or state.near_end(now),
        "members": {
            name: [m.incarnation, m.number, m.state, m.message]
            for name, m in state.members.items()
        },
        "totals": state.books.totals(),
        "job_totals": state.books.job_totals(),
        "failures": state.failures.by_job,
        "best_return": best_return,
        "best_version": best_version,
        "checkpoint": state.checkpoint,
        "restored": state.restored,
        "snapshots": {
            name: gauges["snapshot"]
            for name, gauges in state.books.gauges().items()
            if "snapshot" in gauges
        },
    }


def _stop(state: RunState, now: float) -> dict[str, Any]:
    if state.stop_is_due:
        before = STARTING if state.running_since is None else RUNNING
        stop = {"phase": before, "stop_reason": "", "stop_time": None}
        return stop | {"stop_is_due": True}
    since = state.stopping_since
    return {
        "phase": state.phase,
        "stop_reason": state.stop_reason,
        "stop_time": None if since is None else time.time() - (now - since),
        "stop_is_due": False,
    }
