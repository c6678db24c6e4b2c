"""The failures of a run: which of them it survives, and who has to come back."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

from distrl.lifecycle.failure_policy import (
    FAIL,
    RESTART,
    FailureCounts,
    FailurePolicies,
)

log = logging.getLogger(__name__)


@dataclasses.dataclass
class _Awaited:
    """A task that the run needs, and that has failed."""

    until: float
    cause: str


class Failures:
    """Part of a run's state: a failure and the time go in, a reason to stop comes out.

    A reason is "" where the run goes on. `startup_secs` is how long a task that the run
    needs may be away.
    """

    def __init__(self, policies: FailurePolicies, startup_secs: float):
        self.policies = policies
        self._counts = FailureCounts()
        self._startup_secs = startup_secs
        self._awaited: dict[str, _Awaited] = {}
        self.last = ""  # cause

    def add(self, name: str, cause: str, needed: bool, left: int, now: float) -> str:
        """Takes in the failure of a task such as "actor/0".

        `needed` says whether the cluster lists it; `left` is how many others of its job
        are still there.
        """
        job = name.split("/")[0]
        policy = self.policies.of(job)
        action = self._counts.add(job, policy, now)
        self.last = cause
        if action == FAIL:
            return cause if policy.action == FAIL else self._too_many(job, cause, now)
        if needed and action == RESTART:
            self._awaited[name] = _Awaited(now + self._startup_secs, cause)
        elif needed and not left:
            return f"no {job} is left: {cause}"
        text = "%s; the policy for this job is %s, failures so far: %d"
        log.warning(text, cause, getattr(self.policies, job), self._counts.by_job[job])
        return ""

    def _too_many(self, job: str, cause: str, now: float) -> str:
        number, allowed = self._counts.recent(job, now), self.policies.of(job).per_hour
        return (
            f"{number} failures of job {job} within an hour, where {allowed} are "
            f"allowed; the last: {cause}"
        )

    def came_back(self, name: str) -> None:
        """A task has joined, for the first time or again."""
        self._awaited.pop(name, None)

    def awaits(self, name: str) -> bool:
        """Whether this task is to come back."""
        return name in self._awaited

    def overdue(self, now: float) -> str:
        """The first task that has not come back in time, as a reason to stop; it is no
        longer awaited."""
        for name, awaited in self._awaited.items():
            if now > awaited.until:
                del self._awaited[name]
                secs = self._startup_secs
                return f"{name} has not come back for {secs:.0f} s: {awaited.cause}"
        return ""

    @property
    def by_job(self) -> dict[str, int]:
        """How many tasks have failed since the start, of the jobs with any."""
        return {job: n for job, n in self._counts.by_job.items() if n}

    def dump(self, now: float) -> dict[str, Any]:
        """What has failed so far, with ages and times that are left in s; JSON."""
        awaited = {n: [a.until - now, a.cause] for n, a in self._awaited.items()}
        return {
            "counts": self._counts.dump(now),
            "awaited": awaited,
            "last": self.last,
        }

    def recall(self, dump: dict[str, Any], now: float) -> None:
        """Takes over what was dumped."""
        self._counts.recall(dump["counts"], now)
        self.last = self.last or dump["last"]
        for name, (secs, cause) in dump["awaited"].items():
            self._awaited[name] = _Awaited(now + secs, cause)
