"""What a user sets about the run as a whole."""

from __future__ import annotations

import dataclasses

from distrl.core.errors import ConfigError
from distrl.lifecycle.failure_policy import FailurePolicies


@dataclasses.dataclass(frozen=True)
class StopConditions:
    """When the run ends; whichever comes first. There is no hidden default.

    `target_return` is compared with the mean of the greedy evaluation episodes that
    actor 0 plays now and then.
    """

    max_env_steps: int | None = None
    max_learner_steps: int | None = None
    max_seconds: float | None = None  # since the run left its start-up
    target_return: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_env_steps", "max_learner_steps", "max_seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"StopConditions.{name}: expected > 0, got {value}")

    @property
    def goal(self) -> str:
        """The conditions as text."""
        return ", ".join(
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) is not None
        )

    def fraction(self, env_steps: float, learner_steps: float, secs: float) -> float:
        """The largest share, up to 1, of a limit that has been used; 0 without one."""
        used = (
            (env_steps, self.max_env_steps),
            (learner_steps, self.max_learner_steps),
            (secs, self.max_seconds),
        )
        return min(1.0, max((n / limit for n, limit in used if limit), default=0.0))


@dataclasses.dataclass(frozen=True)
class Timeouts:
    """The limits of every wait between tasks, in seconds."""

    startup_secs: float = 120.0  # until all listed tasks and one actor have joined
    heartbeat_secs: float = 15.0  # without beats until a task is lost
    stall_secs: float = 120.0  # beats without progress until that is reported
    shutdown_secs: float = 30.0  # of each step of the farewell
    beat_period_secs: float = 1.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) <= 0:
                raise ConfigError(
                    f"Timeouts.{field.name}: expected > 0, "
                    f"got {getattr(self, field.name)}"
                )
        if self.heartbeat_secs < 3 * self.beat_period_secs:
            raise ConfigError(
                f"Timeouts.heartbeat_secs: expected at least three beat periods of "
                f"{self.beat_period_secs} s, got {self.heartbeat_secs}"
            )

    def beat_secs(self, num_tasks: int, fast: bool = False) -> float:
        """Between two beats of a task; longer when there are so many tasks that ps 0
        would spend more than a fifth of a core on them (3 ms a beat)."""
        wanted = min(self.beat_period_secs, 0.1) if fast else self.beat_period_secs
        return max(wanted, num_tasks * 0.003 / 0.2)

    def silence_secs(self, num_tasks: int) -> float:
        """Without beats until a task is lost."""
        return max(self.heartbeat_secs, 5 * self.beat_secs(num_tasks))


@dataclasses.dataclass(frozen=True)
class Run:
    """The seed that all random streams of the run come from, the limits, and what
    happens when tasks fail."""

    seed: int = 0
    stop: StopConditions = StopConditions()
    timeouts: Timeouts = Timeouts()
    failures: FailurePolicies = FailurePolicies()
    trace_rows: bool = False  # see `cluster.row_trace`

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError(f"Run.seed: expected 0 or more, got {self.seed}")
