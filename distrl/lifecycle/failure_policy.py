"""What a run makes of tasks that fail. No TensorFlow: the launcher reads this, too."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, deque
from typing import NamedTuple

from distrl.cluster.spec import JOBS
from distrl.core.errors import ConfigError

FAIL, IGNORE, RESTART = "fail", "ignore", "restart"
WINDOW_SECS = 3600.0
_FORM = re.compile(r"(fail|ignore)|(restart)\(([1-9][0-9]{0,8})\)")


class Policy(NamedTuple):
    """One of the three ways, and how often `restart` is allowed."""

    action: str
    per_hour: int = 0


def parse_policy(text: str, what: str) -> Policy:
    """The policy of a text such as "restart(20)". Raises ConfigError that begins with
    `what`."""
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(
            f"{what}: expected fail, ignore or restart(n per hour), got {text!r}"
        )
    return Policy(match[1] or match[2], int(match[3] or 0))


@dataclasses.dataclass(frozen=True)
class FailurePolicies:
    """What happens when a task of a job fails or is lost.

    "fail" ends the run, "ignore" goes on without the task, "restart(n)" expects it back
    and ends the run when the job has failed more than n times within an hour. Raises
    ConfigError for other texts.
    """

    actor: str = "restart(20)"
    memory: str = "restart(5)"
    learner: str = "restart(5)"
    ps: str = "restart(5)"
    evaluator: str = "ignore"

    def __post_init__(self) -> None:
        for job in JOBS:
            self.of(job)
        if self.ps == IGNORE:
            raise ConfigError(
                f"FailurePolicies.ps: expected fail or restart(n per hour), got "
                f"{self.ps!r}: each ps holds a part that nobody can do without"
            )

    def of(self, job: str) -> Policy:
        """The policy of one job."""
        return parse_policy(getattr(self, job), f"FailurePolicies.{job}")


class FailureCounts:
    """Counts failures by job, and tells what to do about each.

    `now` is any monotonic clock, in s.
    """

    def __init__(self) -> None:
        self.by_job: Counter[str] = Counter()
        self._recent: dict[str, deque[float]] = {job: deque() for job in JOBS}

    def add(self, job: str, policy: Policy, now: float) -> str:
        """FAIL, IGNORE or RESTART; FAIL also where RESTART was allowed too often."""
        self.by_job[job] += 1
        self._recent[job].append(now)
        too_many = self.recent(job, now) > policy.per_hour
        return FAIL if policy.action == RESTART and too_many else policy.action

    def recent(self, job: str, now: float) -> int:
        """The failures of a job within the last hour."""
        times = self._recent[job]
        while times and times[0] <= now - WINDOW_SECS:
            times.popleft()
        return len(times)

    def dump(self, now: float) -> dict[str, list[float]]:
        """Of each job how many, and how long ago in s the recent ones were."""
        return {
            job: [self.by_job[job], *[now - then for then in self._recent[job]]]
            for job in JOBS
        }

    def recall(self, dump: dict[str, list[float]], now: float) -> None:
        """Adds what was dumped to what has been counted since."""
        for job, (number, *ages) in dump.items():
            self.by_job[job] += int(number)
            self._recent[job].extendleft(now - age for age in reversed(ages))
