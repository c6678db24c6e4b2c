"""The run as ps 0 publishes it to all tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distrl.cluster.messages import Producer
from distrl.core.errors import RunEnding, TaskRefused
from distrl.lifecycle import run_state


class View:
    """The run as last published by ps 0. Immutable."""

    def __init__(self, content: Mapping[str, Any]):
        self.run_id: str = content["run_id"]
        self.phase: str = content["phase"]
        self.stop_reason: str = content["stop_reason"]
        self.members: dict[str, list[Any]] = content["members"]
        self.totals: dict[str, float] = content["totals"]
        self.job_totals: dict[str, dict[str, float]] = content["job_totals"]
        self.failures: dict[str, int] = content["failures"]  # by job
        self.best_version: int | None = content["best_version"]
        self.best_return: float = content["best_return"]
        self.running_secs: float = content["running_secs"]
        self.near_end: bool = content["near_end"]
        self.stop_is_due: bool = content["stop_is_due"]  # once learner 0 keeps it
        self.stop_time: float | None = content["stop_time"]  # unix
        self.checkpoint: int = content["checkpoint"]  # the newest that was asked for
        self.restored: int = content["restored"]  # that a resumed run began with, or 0
        self.snapshots: dict[str, int] = content["snapshots"]  # newest of each memory

    @property
    def stopping(self) -> bool:
        return self.phase in (run_state.STOPPING, run_state.FINISHED)

    @property
    def failed(self) -> bool:
        return self.stop_reason.startswith(run_state.FAILURE)

    def entry(self, producer: Producer) -> list[Any] | None:
        """Incarnation, number of the last beat, state and message of one task; None
        while ps 0 has not heard it, or after it was replaced."""
        for name in (str(producer), f"{producer}/{producer.incarnation}"):
            entry = self.members.get(name)
            if entry is not None and entry[0] == producer.incarnation:
                return entry
        return None

    def verdict(self, producer: Producer) -> Exception | None:
        """What ps 0 has against a task: that it is refused, fenced or lost."""
        entry = self.entry(producer)
        if entry is None:
            newest = self.members.get(str(producer))
            if newest is not None and newest[0] > producer.incarnation:
                return TaskRefused(f"{producer}: a newer one has taken its place")
            return None
        state, message = entry[2:]
        if state == run_state.REFUSED and message == run_state.ENDING:
            return RunEnding(message)
        if state == run_state.REFUSED:
            return TaskRefused(f"{producer} cannot join: {message}")
        if state == run_state.LOST:
            return TaskRefused(f"{producer} was declared lost: {message}")
        return None

    def producers(self, job: str) -> dict[Producer, str]:
        """The members of one job and their states."""
        return {
            Producer(job, int(name.split("/")[1]), incarnation): state
            for name, (incarnation, _, state, _) in self.members.items()
            if name.startswith(f"{job}/")
        }

    def all_gone(self, job: str) -> bool:
        """Whether every member of this job is done, lost, failed or refused."""
        return all(s in run_state.GONE for s in self.producers(job).values())


NOTHING_YET = View(
    {
        "run_id": "",
        "phase": run_state.STARTING,
        "stop_reason": "",
        "members": {},
        "totals": {},
        "job_totals": {},
        "failures": {},
        "best_version": None,
        "best_return": 0.0,
        "running_secs": 0.0,
        "stop_time": None,
        "near_end": False,
        "stop_is_due": False,
        "checkpoint": 0,
        "restored": 0,
        "snapshots": {},
    }
)
