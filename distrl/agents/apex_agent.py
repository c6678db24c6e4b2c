"""Ape-X (Horgan et al. 2018, https://arxiv.org/abs/1803.00933) with DQN or DDPG."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np

from distrl.agents.actor_learner_agent import EnvironmentFactory
from distrl.agents.apex_actor import ApexActor, JudgedBehaviour, make_behaviour
from distrl.agents.apex_learner import ApexLearner
from distrl.agents.apex_memory import ApexMemory, experience_channel
from distrl.agents.async_agent import AsyncAgent
from distrl.agents.settings import Acting, Learning, Replay
from distrl.cluster.messages import ChannelSpec
from distrl.core import seeds
from distrl.core.errors import ConfigError
from distrl.core.specs import EnvironmentSpec
from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle.task import Task
from distrl.memories.rate_limiter import RateLimiter
from distrl.memories.replay_memory import ReplayMemory
from distrl.metrics.machine import memory_bytes
from distrl.models.ddpg import DDPGModel
from distrl.models.dqn import DQNModel

log = logging.getLogger(__name__)


class ApexAgent(AsyncAgent):
    """Many actors that explore differently fill prioritized memories that one learner
    draws on.

    With a DQNModel, for a discrete action, every slot has an ε of its own; with a
    DDPGModel, for an array of bounded real numbers, noise of its own. Actors compute
    the first priorities from the values they acted on; the learner's come back with the
    ids of the rows. Actor 0 also plays greedy evaluation episodes, which are never
    shipped. The slots of an actor are dealt out over the memories, so each
    environment's stream stays with one memory. With `num_groups` of 2, half of an
    actor's environments step while the policy acts on the other half (which needs a
    vector environment with processes of its own).
    """

    model: DQNModel | DDPGModel

    def __init__(
        self,
        environment_factory: EnvironmentFactory,
        memory_factory: type[ReplayMemory],
        model: DQNModel | DDPGModel,
        num_envs: int = 32,
        acting: Acting = Acting(),
        replay: Replay = Replay(),
        learning: Learning = Learning(),
        num_groups: int = 1,
    ):
        super().__init__(environment_factory, num_envs, num_groups)
        self.memory_factory, self.model = memory_factory, model
        self.acting, self.replay, self.learning = acting, replay, learning

    def check(self, spec: EnvironmentSpec, task: Task) -> None:
        try:
            self.model.check(spec)
        except ConfigError as error:
            raise ConfigError(
                f"ApexAgent.model is a {type(self.model).__name__}: {error}"
            ) from error
        try:
            self.make_limiter(task)
        except ValueError as error:
            raise ConfigError(f"Replay: {error}") from error
        if task.job == "memory":
            self._check_capacity(spec, task)

    def _check_capacity(self, spec: EnvironmentSpec, task: Task) -> None:
        capacity = self.replay.capacity
        needed = self.memory_factory.predicted_bytes(spec, capacity)
        gib, there = needed / 2**30, memory_bytes() / 2**30
        log.info("a full replay of %d transitions takes %.2f GiB", capacity, gib)
        task.gauges["memory_gib"] = round(gib, 3)
        if gib > there:
            raise ConfigError(
                f"Replay.capacity {capacity} needs {gib:.1f} GiB, "
                f"this machine has {there:.1f} GiB"
            )

    @property
    def evaluation_episodes(self) -> int:
        return self.acting.evaluation_episodes

    def make_judged(self, spec: EnvironmentSpec) -> JudgedBehaviour:
        seed = np.random.SeedSequence(0)  # of an exploration that it does without
        return JudgedBehaviour(
            make_behaviour(self.model, spec, self.acting, range(1), 1, seed)
        )

    def make_limiter(self, task: Task) -> RateLimiter:
        """The limiter of one memory. Raises ValueError when its band is too narrow."""
        replay, per_insert = self.replay, self.replay.samples_per_insert or 1.0
        slots = math.ceil(self.num_envs / len(task.cluster.memory))
        block = slots * (self.acting.block_length + self.acting.n_step)
        band = per_insert * block + replay.bundle_rows
        tolerance = band if replay.tolerance is None else replay.tolerance
        limiter = RateLimiter(
            replay.samples_per_insert, replay.min_size_to_sample, tolerance
        )
        limiter.check(block, replay.bundle_rows)
        return limiter

    def make_actor(
        self, task: Task, spec: EnvironmentSpec, groups: Sequence[VectorEnvironment]
    ) -> ApexActor:
        evaluation = self.make_evaluation(task)
        return ApexActor(task, groups, evaluation, self.model, self.acting)

    def experience_channel(self, spec: EnvironmentSpec) -> ChannelSpec:
        return experience_channel(spec)

    def make_memory(self, task: Task, spec: EnvironmentSpec) -> ApexMemory:
        seed = seeds.seed_sequence(task.run.seed, "memory", task.index)
        memory = self.memory_factory(
            spec=spec, capacity=self.replay.capacity, seed=seed
        )
        return ApexMemory(task, spec, memory, self.make_limiter(task), self.replay)

    def make_learner(self, task: Task, spec: EnvironmentSpec) -> ApexLearner:
        return ApexLearner(task, spec, self.model, self.learning, self.replay)

    def _pull_secs(self) -> float:
        return self.acting.pull_period_secs
