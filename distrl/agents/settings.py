"""What a user sets about acting, replaying and learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from distrl.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Acting:
    """How actors act and ship."""

    n_step: int = 3  # env steps folded into one transition
    discount: float = 0.99  # of one env step
    block_length: int = 32  # actor steps between two shipments
    epsilon_base: float = 0.4  # slot i of N explores with base^(1 + exponent·i/(N−1))
    epsilon_exponent: float = 7.0
    noise_max: float = 0.4  # std of slot 0, in half the distance of the action's bounds
    noise_min: float = 0.05  # of the last slot; between them it falls evenly
    noise_correlation: float = 0.0  # of successive steps; 0 is white, 0.85 as in DDPG
    pull_period_secs: float = 0.2  # between looks for newer parameters
    evaluation_period_secs: float = 10.0  # between greedy evaluations by actor 0
    evaluation_episodes: int = 20

    def __post_init__(self) -> None:
        _check_positive(self, ("n_step", "block_length", "evaluation_episodes"))
        _check_positive(self, ("pull_period_secs", "evaluation_period_secs"))
        if not 0 <= self.discount <= 1:
            raise ConfigError(f"Acting.discount: expected 0 to 1, got {self.discount}")
        if not 0 <= self.epsilon_base <= 1:
            raise ConfigError(
                f"Acting.epsilon_base: expected 0 to 1, got {self.epsilon_base}"
            )

        if not 0 <= self.noise_min <= self.noise_max:
            raise ConfigError(
                "Acting.noise_min and noise_max: expected 0 <= noise_min <= noise_max, "
                f"got {self.noise_min} and {self.noise_max}"
            )
        if not 0 <= self.noise_correlation < 1:
            raise ConfigError(
                "Acting.noise_correlation: expected 0 to below 1, "
                f"got {self.noise_correlation}"
            )

    def epsilons(self, first: int, number: int, total: int) -> list[float]:
        """Exploration of slots first … first + number − 1 of `total` (Horgan et al.
        2018, https://arxiv.org/abs/1803.00933). A single slot explores with `base`."""
        return [
            self.epsilon_base
            ** (1 + self.epsilon_exponent * (slot % total) / max(1, total - 1))
            for slot in range(first, first + number)
        ]

    def noise_stds(self, first: int, number: int, total: int) -> list[float]:
        """Noise of slots first … first + number − 1 of `total`, linear from `noise_max`
        to `noise_min`. A single slot has `noise_max`."""
        fall = (self.noise_max - self.noise_min) / max(1, total - 1)
        return [
            self.noise_max - fall * (slot % total)
            for slot in range(first, first + number)
        ]


@dataclasses.dataclass(frozen=True)
class Replay:
    """How a memory serves its rows."""

    capacity: int = 1_000_000  # transitions of each memory
    batch_size: int = 256  # rows of one learner step
    batches_per_message: int = 8
    samples_per_insert: float | None = 8.0  # average; None lets both sides run free
    min_size_to_sample: int = 1_000  # transitions of each memory
    tolerance: float | None = None  # samples ahead or behind; None: as small as works

    def __post_init__(self) -> None:
        _check_positive(self, ("capacity", "batch_size", "batches_per_message"))
        _check_positive(self, ("min_size_to_sample",))
        limits = ("samples_per_insert", "tolerance")
        _check_positive(self, [n for n in limits if getattr(self, n) is not None])
        if self.min_size_to_sample > self.capacity:
            raise ConfigError(
                f"Replay.min_size_to_sample {self.min_size_to_sample} is above "
                f"Replay.capacity {self.capacity}"
            )

    @property
    def bundle_rows(self) -> int:
        """Rows of one `batches` message."""
        return self.batch_size * self.batches_per_message


@dataclasses.dataclass(frozen=True)
class Rounds:
    """How the rounds of a synchronous agent are collected."""

    steps_per_round: int = 128  # actor steps of each actor
    late_shares: str = "wait"  # or "drop": the round goes on without them
    share_timeout_secs: float = 30.0  # after which a share is late
    evaluation_period_secs: float = 10.0  # between greedy evaluations by actor 0
    evaluation_episodes: int = 20

    def __post_init__(self) -> None:
        _check_positive(self, ("steps_per_round", "share_timeout_secs"))
        _check_positive(self, ("evaluation_period_secs", "evaluation_episodes"))
        if self.late_shares not in ("wait", "drop"):
            raise ConfigError(
                'Rounds.late_shares: expected "wait" or "drop", '
                f"got {self.late_shares!r}"
            )


@dataclasses.dataclass(frozen=True)
class Unrolls:
    """How the actors of IMPALA act and ship."""

    unroll_length: int = 20  # actor steps
    pull_period_secs: float = 0.05  # between looks for newer parameters
    evaluation_period_secs: float = 10.0  # between greedy evaluations by actor 0
    evaluation_episodes: int = 20

    def __post_init__(self) -> None:
        _check_positive(self, ("unroll_length", "pull_period_secs"))
        _check_positive(self, ("evaluation_period_secs", "evaluation_episodes"))


@dataclasses.dataclass(frozen=True)
class Inference:
    """Where the actors of IMPALA have their actions from, and how many at once.

    A batch is rows of environments; see `core.DynamicBatcher`. Batches are those of an
    actor's groups in threads, or of all actors at the learner.
    """

    at: str = "actor"  # or "learner", as in SEED RL: observations travel there
    group_threads: bool = False  # groups step in threads, and share a forward pass
    min_batch_size: int = 1  # rows; 1 waits for nobody
    max_batch_size: int = 1024  # rows
    batch_timeout_secs: float = 0.01  # the longest wait for min_batch_size

    def __post_init__(self) -> None:
        if self.at not in ("actor", "learner"):
            raise ConfigError(
                f'Inference.at: expected "actor" or "learner", got {self.at!r}'
            )
        _check_positive(self, ("min_batch_size", "batch_timeout_secs"))
        if self.max_batch_size < self.min_batch_size:
            raise ConfigError(
                f"Inference.max_batch_size {self.max_batch_size} is below "
                f"min_batch_size {self.min_batch_size}"
            )


@dataclasses.dataclass(frozen=True)
class UnrollBatches:
    """How a memory of IMPALA serves; see `memories.TrajectoryMemory`."""

    batch_size: int = 25  # unrolls of one learner step
    batches_per_message: int = 1
    max_waiting: int = 2  # messages a memory keeps; then it takes in no more
    replay_capacity: int = 0  # unrolls of each memory
    replay_proportion: float = 0.0  # replayed unrolls for each fresh one
    max_reuse: int | None = None  # of a stored unroll

    def __post_init__(self) -> None:
        _check_positive(self, ("batch_size", "batches_per_message", "max_waiting"))


@dataclasses.dataclass(frozen=True)
class Learning:
    """How often the learner does what is not training."""

    publish_period: int = 50  # learner steps between publications of parameters
    checkpoint_period_secs: float = 30.0
    checkpoints_kept: int = 5
    memory_snapshots: bool = True  # memories save what they hold with each checkpoint
    num_threads: int = 1  # inside an op of the training step
    if_not_finite: str = "stop"  # the run; or "skip": go back to what was published

    def __post_init__(self) -> None:
        _check_positive(self, ("publish_period", "checkpoint_period_secs"))
        _check_positive(self, ("checkpoints_kept", "num_threads"))
        if self.if_not_finite not in ("stop", "skip"):
            raise ConfigError(
                'Learning.if_not_finite: expected "stop" or "skip", '
                f"got {self.if_not_finite!r}"
            )


def _check_positive(settings: object, names: Sequence[str]) -> None:
    for name in names:
        value = getattr(settings, name)
        if not value > 0:
            raise ConfigError(
                f"{type(settings).__name__}.{name}: expected > 0, got {value}"
            )
