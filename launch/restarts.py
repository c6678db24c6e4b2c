"""What becomes of a task that has failed."""

from __future__ import annotations

import time
from typing import NamedTuple

from distrl.lifecycle.failure_policy import (
    FAIL,
    IGNORE,
    RESTART,
    FailureCounts,
    FailurePolicies,
)
from launch.description import Task
from launch.processes import TaskExit

BAD_INPUT = 2  # exit code of a task that would fail in the same way again
ENDED_BY_OTHERS = 3  # exit code of a task that ended because another one failed
DIVERGED = 5  # exit code of a learner that would diverge again
HOLD_TOGETHER = ("ps", "learner")  # jobs that a run needs up to its end
_SHORT_LIFE_SECS = 60.0
_MAX_PAUSE_SECS = 30.0


class Decision(NamedTuple):
    """FAIL (ends the run), IGNORE or RESTART, and how that is said."""

    action: str
    words: str


class Restarts:
    """Decides, failure by failure, under the policies of the run."""

    def __init__(self, policies: FailurePolicies):
        self.policies = policies
        self._counts = FailureCounts()
        self._created = time.monotonic()
        self._started: dict[str, float] = {}  # by name of a task, the last time
        self._short_lives: dict[str, int] = {}  # one after the other

    def survives(self, task: Task) -> bool:
        """Whether the run can do without this process, or with another in its place."""
        return self.policies.of(task.job).action != FAIL

    def decide(self, event: TaskExit, ending: bool) -> Decision:
        """What to do about a task that has not ended in order; `ending` says that the
        run is at its end, where only those are started again that hold it together."""
        end = Decision(FAIL, "ending the run")
        if event.exit_code in (BAD_INPUT, ENDED_BY_OTHERS, DIVERGED):
            return end
        if not self.survives(event.task):
            return end
        if ending and event.task.job not in HOLD_TOGETHER:
            return Decision(IGNORE, "the run ends without it")
        job, now = event.task.job, time.monotonic()
        policy = self.policies.of(job)
        action = self._counts.add(job, policy, now)
        number = self._counts.recent(job, now)
        if action == RESTART:
            count = f"{number} of {policy.per_hour} an hour"
            return Decision(RESTART, f"starting it again ({count})")
        if action == IGNORE:
            return Decision(IGNORE, "the run goes on without it")
        many = f"{number} failures of job {job} within an hour, {policy.per_hour} are"
        return Decision(FAIL, f"{many} allowed; ending the run")

    def pause_secs(self, task: Task) -> float:
        """Seconds until this task is started again: none at first, then from one short
        life to the next twice as many, so that what is wrong may pass."""
        now = time.monotonic()
        short = now - self._started.get(task.name, self._created) < _SHORT_LIFE_SECS
        lives = self._short_lives.get(task.name, 0) + 1 if short else 0
        pause = min(2.0 ** (lives - 2), _MAX_PAUSE_SECS) if lives > 1 else 0.0
        self._short_lives[task.name] = lives
        self._started[task.name] = now + pause
        return pause
