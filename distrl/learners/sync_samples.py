"""From a round of rows to the updates of PPO."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from distrl.core.nests import map_nest
from distrl.core.records import RolloutRows, rollout_rows_spec
from distrl.core.schedules import Schedule, constant
from distrl.core.specs import validate
from distrl.learners.minibatches import StepMinibatches, UnrollMinibatches
from distrl.learners.policy_session import PPOSession
from distrl.learners.reward_scaling import RewardScaling
from distrl.losses.returns import (
    generalized_advantages,
    normalised_advantages,
    step_mask,
)
from distrl.models.ppo import PPOBatch


@dataclasses.dataclass(frozen=True)
class PPOSettings:
    """How a round becomes updates. Raises ValueError for a number out of its range."""

    num_epochs: int = 10  # how often each row is trained on
    minibatch_size: int = 256  # rows, at least; see `learners.minibatches`
    discount: float = 0.99
    lambda_: float = 0.95
    advantage_normalisation: Literal["minibatch", "batch"] | None = "minibatch"
    max_kl: float | None = None  # nats; above it a round ends early
    learning_rate: Schedule = constant(3e-4)  # over env steps
    clip: Schedule = constant(0.2)  # of the ratio, over env steps
    normalise_rewards: bool = False
    reward_clip: float = 10.0  # in normalised rewards

    def __post_init__(self) -> None:
        for name in ("num_epochs", "minibatch_size"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1, got {getattr(self, name)}"
                )
        for name in ("discount", "lambda_"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        for name in ("max_kl", "reward_clip"):
            number = getattr(self, name)
            if number is not None and not number > 0:
                raise ValueError(f"{name} must be above 0, got {number}")
        if self.advantage_normalisation not in ("minibatch", "batch", None):
            raise ValueError(
                "advantage_normalisation must be 'minibatch', 'batch' or None, got "
                f"{self.advantage_normalisation!r}"
            )


class RoundResult(NamedTuple):
    """What became of a round."""

    num_minibatches: int  # learner steps, fewer than planned where max_kl ended it
    num_rows: int  # steps of episodes in the round: its env steps
    metrics: dict[str, float]  # means over the minibatches, and some of the round


class SyncSamples:
    """Trains on whole rounds, one after the other.

        samples = SyncSamples(session, settings, seed)
        result = samples.train(rows, env_steps)
        publish(session.parameters())

    A round is trained with the observation statistics that it was acted with; its own
    observations enter them afterwards, so the next published parameters have them.
    Rewards are scaled by statistics that include the round's. The shuffles are a
    function of the seed and the number of rounds before: equal rounds, seeds and first
    parameters give equal parameters, bit for bit, also behind a `restore`.
    """

    def __init__(self, session: PPOSession, settings: PPOSettings, seed: int):
        """`seed` is at least 0; it is that of the shuffles."""
        self._session = session
        self._settings = settings
        self._seed = seed
        self._spec = rollout_rows_spec(
            session.spec,
            session.raw_spec,
            session.core.state_spec if session.core else (),
        )
        self._rewards: RewardScaling | None = None
        if settings.normalise_rewards:
            self._rewards = RewardScaling(settings.discount, settings.reward_clip)
        self.rounds = 0  # trained on

    def train(self, rows: RolloutRows, env_steps: float) -> RoundResult:
        """Trains on every step of the round; `env_steps` is where schedules are read.

        The states of a recurrent core are those before every `unroll_length`-th step,
        cleared where an episode begins.

        A round without any step of an episode trains nothing. Raises ValueError for
        arrays that do not fit each other or the spec, rewards and observations that are
        not finite, core states that the model does not have or that are missing, and a
        schedule that gives a negative value.
        """
        settings = self._settings
        core = self._session.core
        _check(self._spec, rows, core.unroll_length if core else 1)
        learning_rate = _scheduled("learning_rate", settings.learning_rate, env_steps)
        clip = _scheduled("clip", settings.clip, env_steps)
        mask = step_mask(rows.terminated, rows.truncated, rows.first_is_last)
        batch = self._batch(rows, mask)
        measured = self._epochs(batch, learning_rate, clip)
        seen = map_nest(lambda leaf: leaf[mask], batch.observation)
        self._session.update_normaliser(seen)
        self.rounds += 1
        metrics = _means(measured)
        if measured:
            metrics |= _round_metrics(batch.value_target[mask], batch.old_value[mask])
            metrics |= {"learning_rate": learning_rate, "clip": clip}
        return RoundResult(len(measured), int(mask.sum()), metrics)

    def state(self) -> dict[str, np.ndarray]:
        """What the session does not know: rounds, and the statistics of rewards."""
        scaling = self._rewards.state() if self._rewards else {}
        named = {f"rewards/{name}": array for name, array in scaling.items()}
        return {"rounds": np.asarray(self.rounds, np.int64), **named}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over a `state()` of equal settings; raises KeyError for less."""
        if self._rewards:
            names = [name for name in state if name.startswith("rewards/")]
            own = {name.removeprefix("rewards/"): state[name] for name in names}
            self._rewards.restore(own)
        self.rounds = int(state["rounds"])

    def _batch(self, rows: RolloutRows, mask: np.ndarray) -> PPOBatch:
        """All rows `[T, N, ...]`, also those that no minibatch takes."""
        settings, rewards = self._settings, rows.reward
        if self._rewards:
            ends = rows.terminated | rows.truncated
            rewards = self._rewards.scale(rewards, ends, mask, rows.stream)
        advantages, targets = generalized_advantages(
            *(rewards, rows.value, rows.terminated, rows.truncated, mask),
            *(settings.discount, settings.lambda_),
        )
        if settings.advantage_normalisation == "batch":
            advantages = normalised_advantages(advantages, mask)
        return PPOBatch(
            observation=map_nest(lambda leaf: leaf[:-1], rows.observation),
            raw_action=rows.raw_action,
            behaviour_log_prob=rows.behaviour_log_prob,
            advantage=advantages,
            value_target=targets,
            old_value=rows.value[:-1],
            mask=mask.astype(np.float32),
            core_state=rows.core_state,
        )

    def _epochs(
        self, batch: PPOBatch, learning_rate: float, clip: float
    ) -> list[dict[str, float]]:
        """The metrics of each learner step.

        A minibatch whose approximate KL divergence, measured before its own update, is
        above `max_kl` is the last one.
        """
        settings, measured = self._settings, []
        source = self._minibatches(batch)
        seeds = np.random.SeedSequence(self._seed, spawn_key=(self.rounds,))
        generator = np.random.default_rng(seeds)
        for _ in range(settings.num_epochs):
            for minibatch in source.epoch(settings.minibatch_size, generator):
                minibatch = self._normalised(minibatch)
                measured.append(self._session.train(minibatch, learning_rate, clip))
                kl = measured[-1]["approximate_kl"]
                if settings.max_kl is not None and not kl <= settings.max_kl:
                    return measured
        return measured

    def _minibatches(self, batch: PPOBatch) -> StepMinibatches | UnrollMinibatches:
        core = self._session.core
        if core is None:
            return StepMinibatches(batch)
        return UnrollMinibatches(batch, core.unroll_length)

    def _normalised(self, minibatch: PPOBatch) -> PPOBatch:
        if self._settings.advantage_normalisation != "minibatch":
            return minibatch
        normal = normalised_advantages(minibatch.advantage, minibatch.mask > 0)
        return minibatch._replace(advantage=normal)


def _scheduled(name: str, schedule: Schedule, env_steps: float) -> float:
    value = schedule(env_steps)
    if not value >= 0:
        raise ValueError(f"{name} at {env_steps} env steps is {value}")
    return value


def _means(measured: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the learner steps."""
    names = measured[0] if measured else ()
    return {name: float(np.mean([each[name] for each in measured])) for name in names}


def _round_metrics(target: np.ndarray, value: np.ndarray) -> dict[str, float]:
    """How much of the targets' variance the acting values explain, 1 at most."""
    variance = float(target.var())
    share = 1.0 - float((target - value).var()) / variance if variance else 0.0
    return {"mean_value_target": float(target.mean()), "explained_variance": share}


def _check(spec: RolloutRows, rows: RolloutRows, unroll_length: int) -> None:
    """Raises ValueError, naming the leaf, for what does not fit."""
    ends: dict[str, tuple[()]] = {"first_is_last": (), "stream": ()}
    validate(spec._replace(**ends), rows._replace(**ends), 2, "round")
    for name in ends:
        validate(getattr(spec, name), getattr(rows, name), 1, f"round, {name}")
    num_steps, num_streams = rows.reward.shape
    for name, nest in rows._asdict().items():
        length = num_steps + (name in ("observation", "value"))
        if name == "core_state":
            length = num_steps // unroll_length
        shape = (num_streams,) if name in ends else (length, num_streams)
        map_nest(lambda leaf, n=name, s=shape: _check_axes(n, leaf, s), nest)


def _check_axes(name: str, leaf: np.ndarray, shape: tuple[int, ...]) -> None:
    if leaf.shape[: len(shape)] != shape:
        raise ValueError(
            f"round, {name}: expected axes {list(shape)}, got {list(leaf.shape)}"
        )
