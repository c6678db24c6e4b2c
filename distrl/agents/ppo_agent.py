"""PPO (Schulman et al. 2017), distributed as in Heess et al. 2017 (DPPO)."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.agents.actor_learner_agent import EnvironmentFactory
from distrl.agents.ppo_actor import PPOActor
from distrl.agents.ppo_learner import PPOLearner
from distrl.agents.settings import Learning, Rounds
from distrl.agents.stream_policies import FlatSampler
from distrl.agents.sync_agent import SyncAgent
from distrl.core.errors import ConfigError
from distrl.core.rollouts import Shares, shares_spec
from distrl.core.specs import EnvironmentSpec
from distrl.environments.vector_environment import VectorEnvironment
from distrl.learners.sync_samples import PPOSettings
from distrl.lifecycle.task import Task
from distrl.models.ppo import PPOModel


class PPOAgent(SyncAgent):
    """Actors collect `steps_per_round` steps of all their environments under the same
    parameters; the learner makes some epochs of minibatches of exactly that.

    Advantages are computed by the learner, from values that came with the rows; so are
    the statistics of observations and rewards, over all actors.
    """

    model: PPOModel

    def __init__(
        self,
        environment_factory: EnvironmentFactory,
        model: PPOModel,
        num_envs: int = 8,
        rounds: Rounds = Rounds(),
        training: PPOSettings = PPOSettings(),
        learning: Learning = Learning(),
        num_groups: int = 1,
    ):
        super().__init__(environment_factory, num_envs, num_groups, rounds=rounds)
        self.model, self.training, self.learning = model, training, learning

    def check(self, spec: EnvironmentSpec, task: Task) -> None:
        """Raises ConfigError for a minibatch that a round cannot fill, for unrolls of a
        recurrent core that do not divide it, and for actions without a distribution."""
        core, steps = self.model.core, self.rounds.steps_per_round
        if core is not None and steps % core.unroll_length:
            raise ConfigError(
                f"RecurrentCore.unroll_length {core.unroll_length} does not divide "
                f"Rounds.steps_per_round {steps}"
            )
        self.model.batch_spec(spec)
        rows = self.rounds.steps_per_round * self.num_envs * task.cluster.num_actors
        if self.training.minibatch_size > rows:
            raise ConfigError(
                f"PPOSettings.minibatch_size {self.training.minibatch_size} is more "
                f"than the {rows} rows of a round ({task.cluster.num_actors} actors of "
                f"{self.num_envs} environments, {self.rounds.steps_per_round} steps)"
            )

    def make_judged(self, spec: EnvironmentSpec) -> FlatSampler:
        return FlatSampler(self.model, spec)

    def record(self, spec: EnvironmentSpec) -> Shares:
        raw_action = self.model.distribution(spec.action).raw_spec
        return shares_spec(spec, raw_action, self.model.core_spec)

    def make_collector(
        self, task: Task, spec: EnvironmentSpec, groups: Sequence[VectorEnvironment]
    ) -> PPOActor:
        evaluation = self.make_evaluation(task)
        return PPOActor(task, groups, evaluation, self.model, self.rounds)

    def make_learner(self, task: Task, spec: EnvironmentSpec) -> PPOLearner:
        return PPOLearner(task, spec, self.model, self.learning, self.training)
