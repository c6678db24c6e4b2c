"""What ps 0 writes down about the run: a status line a second, TensorBoard events."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any

import numpy as np

from distrl.cluster import open_graphs
from distrl.core.threads import Deadline
from distrl.lifecycle.run_state import RunState
from distrl.lifecycle.settings import StopConditions
from distrl.metrics.json_lines import JsonLinesWriter
from distrl.metrics.tensorboard import TensorBoardWriter
from distrl.metrics.timers import Rate

_TENSORBOARD_SECS = 5.0


class RunReporter:
    """Called with the run state about once a second; keeps the rates between calls."""

    def __init__(self, run_dir: pathlib.Path, conditions: StopConditions):
        self._conditions = conditions
        self._lines = JsonLinesWriter(run_dir / "metrics" / "ps-0.jsonl")
        self._events = TensorBoardWriter(run_dir / "tensorboard")
        self._next_event = Deadline(0.0)
        self._rates = {key: Rate() for key in ("env_steps", "learner_steps")}

    def __call__(self, state: RunState) -> None:
        status = self.status(state, time.monotonic())
        own = {"graph_operations": open_graphs.num_operations()}
        self._lines.write({"time": time.time(), **status, **own})
        if self._next_event.passed:
            self._next_event = Deadline(_TENSORBOARD_SECS)
            numbers = {k: v for k, v in status.items() if isinstance(v, int | float)}
            waits = {f"waits/{job}": v for job, v in status["waits"].items()}
            learner = _gauges(state, "learner")
            losses = {f"learner/{k}": v for k, v in learner.items() if k in _LEARNING}
            self._events.write(numbers | waits | losses, int(status["env_steps"]))

    def close(self) -> None:
        self._lines.close()
        self._events.close()

    def status(self, state: RunState, now: float) -> dict[str, Any]:
        """The keys of `metrics.console`."""
        totals = state.books.totals()
        env_steps = totals.get("env_steps", 0)
        learner_steps = totals.get("learner_steps", 0)
        secs = state.running_secs(now)
        fraction = self._conditions.fraction(env_steps, learner_steps, secs)
        memory = _sums(
            state, "memory", ("memory_size", "memory_capacity", "memory_gib")
        )
        return {
            "phase": state.phase,
            "stop_reason": state.stop_reason,
            "goal": self._conditions.goal,
            "goal_fraction": fraction,
            "secs_left": secs * (1 / fraction - 1) if fraction > 0 else None,
            "running_secs": secs,
            "env_steps": env_steps,
            "learner_steps": learner_steps,
            "episodes": totals.get("episodes", 0),
            **{
                f"{key}_per_sec": rate.read(totals.get(key, 0))
                for key, rate in self._rates.items()
            },
            "mean_return": _mean(state, "actor", "mean_return"),
            "evaluation_return": state.books.gauge("evaluation_return"),
            **memory,
            "channels": _channels(state),
            "waits": _waits(state),
            # For the launcher: what it may start again, and what it has to end.
            "failures": state.failures.by_job,
            "failure_policies": dataclasses.asdict(state.failures.policies),
            "lost": state.lost(),
        }


_LEARNING = ("loss", "mean_q", "gradient_norm")


def _gauges(state: RunState, job: str) -> dict[str, Any]:
    """All gauges of one job's tasks; the last task's where several set one."""
    merged: dict[str, Any] = {}
    for name, gauges in state.books.gauges().items():
        if name.startswith(f"{job}/"):
            merged |= gauges
    return merged


def _values(state: RunState, job: str, key: str) -> list[float]:
    return [
        gauges[key]
        for name, gauges in state.books.gauges().items()
        if name.startswith(f"{job}/") and gauges.get(key) is not None
    ]


def _mean(state: RunState, job: str, key: str) -> float | None:
    values = _values(state, job, key)
    return float(np.mean(values)) if values else None


def _sums(state: RunState, job: str, keys: tuple[str, ...]) -> dict[str, float]:
    return {key: sum(_values(state, job, key)) for key in keys}


def _channels(state: RunState) -> dict[str, dict[str, float]]:
    """Messages that wait in each channel, over all its hosts."""
    sizes: dict[str, dict[str, float]] = {}
    for gauges in state.books.gauges().values():
        for key, (size, capacity) in gauges.get("channels", {}).items():
            entry = sizes.setdefault(key, {"size": 0, "capacity": 0})
            entry["size"] += size
            entry["capacity"] += capacity
    return sizes


def _waits(state: RunState) -> dict[str, float]:
    waits = {}
    for job in ("actor", "memory", "learner"):
        fraction = _mean(state, job, "wait_fraction")
        if fraction is not None:
            waits[job] = fraction
    return waits
