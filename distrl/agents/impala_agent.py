"""IMPALA (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561)."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.agents.actor_learner_agent import EnvironmentFactory
from distrl.agents.async_agent import AsyncAgent
from distrl.agents.impala_actor import ImpalaActor
from distrl.agents.impala_learner import ImpalaLearner
from distrl.agents.impala_memory import ImpalaMemory, unrolls_channel
from distrl.agents.settings import Inference, Learning, UnrollBatches, Unrolls
from distrl.agents.stream_policies import FlatSampler
from distrl.cluster.messages import ChannelSpec
from distrl.core import seeds
from distrl.core.errors import ConfigError
from distrl.core.specs import EnvironmentSpec
from distrl.core.trajectories import Trajectories
from distrl.environments.vector_environment import VectorEnvironment
from distrl.learners.impala_session import ImpalaSettings
from distrl.lifecycle.task import Task
from distrl.memories.trajectory_memory import TrajectoryMemory
from distrl.models.impala import ImpalaModel

_SELDOM_SECS = 1.0  # between looks for parameters of actors that do not act by them


class ImpalaAgent(AsyncAgent):
    """Actors ship unrolls under whatever parameters are newest, the learner corrects
    for their age by V-trace.

    Memories join the unrolls of all actors to batches of exactly one size and may mix
    in replayed ones. A row of the ledger is an unroll.
    """

    model: ImpalaModel

    def __init__(
        self,
        environment_factory: EnvironmentFactory,
        model: ImpalaModel,
        num_envs: int = 8,
        unrolls: Unrolls = Unrolls(),
        batches: UnrollBatches = UnrollBatches(),
        training: ImpalaSettings = ImpalaSettings(),
        learning: Learning = Learning(),
        num_groups: int = 1,
        inference: Inference = Inference(),
    ):
        super().__init__(environment_factory, num_envs, num_groups)
        self.inference = inference
        self.model, self.unrolls, self.batches = model, unrolls, batches
        self.training, self.learning = training, learning

    def check(self, spec: EnvironmentSpec, task: Task) -> None:
        """Raises ConfigError for actions without a distribution, for a replay that
        could not serve, for fewer unrolls than devices, and for inferences that are
        smaller than what has to be acted on at once."""
        self._spec(spec)
        try:
            self._make_memory(spec, task)
        except ValueError as error:
            raise ConfigError(f"UnrollBatches: {error}") from error
        size, number = self.batches.batch_size, len(self.training.devices)
        if size < number:
            raise ConfigError(
                f"UnrollBatches.batch_size {size} is less than the {number} devices "
                "of ImpalaSettings"
            )
        group, limit = -(-self.num_envs // self.num_groups), self.inference
        if group > limit.max_batch_size:
            raise ConfigError(
                f"Inference.max_batch_size {limit.max_batch_size} is below the {group} "
                "environments of a group, which are acted on at once"
            )

    @property
    def evaluation_episodes(self) -> int:
        return self.unrolls.evaluation_episodes

    def make_judged(self, spec: EnvironmentSpec) -> FlatSampler:
        return FlatSampler(self.model, spec)

    def _spec(self, spec: EnvironmentSpec) -> Trajectories:
        return self.model.trajectories_spec(spec, self.unrolls.unroll_length)

    def make_actor(
        self, task: Task, spec: EnvironmentSpec, groups: Sequence[VectorEnvironment]
    ) -> ImpalaActor:
        evaluation = self.make_evaluation(task)
        return ImpalaActor(
            task, groups, evaluation, self.model, self.unrolls, self.inference
        )

    def experience_channel(self, spec: EnvironmentSpec) -> ChannelSpec:
        return unrolls_channel(self._spec(spec))

    def make_memory(self, task: Task, spec: EnvironmentSpec) -> ImpalaMemory:
        memory = self._make_memory(spec, task)
        return ImpalaMemory(task, self._spec(spec), memory, self.batches)

    def _make_memory(self, spec: EnvironmentSpec, task: Task) -> TrajectoryMemory:
        batches = self.batches
        return TrajectoryMemory(
            self._spec(spec),
            batches.batch_size,
            seeds.seed_sequence(task.run.seed, "memory", task.index),
            batches.replay_capacity,
            batches.replay_proportion,
            batches.max_reuse,
        )

    def make_learner(self, task: Task, spec: EnvironmentSpec) -> ImpalaLearner:
        return ImpalaLearner(
            task,
            spec,
            self.model,
            self.learning,
            self.training,
            self.batches,
            self.unrolls.unroll_length,
            self.inference,
        )

    def _pull_secs(self) -> float:
        """Who does not act itself needs parameters to begin, and for evaluations."""
        period = self.unrolls.pull_period_secs
        return period if self.inference.at == "actor" else max(period, _SELDOM_SECS)
