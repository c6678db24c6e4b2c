"""Evolution strategies (Salimans et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.agents.actor_learner_agent import EnvironmentFactory
from distrl.agents.es_actor import ESActor, UnperturbedPolicy
from distrl.agents.es_learner import ESLearner, pairs_record
from distrl.agents.settings import Learning, Rounds
from distrl.agents.sync_agent import SyncAgent
from distrl.core.errors import ConfigError
from distrl.core.returns_of_pairs import PairShares
from distrl.core.specs import EnvironmentSpec
from distrl.environments.vector_environment import VectorEnvironment
from distrl.learners.evolution_session import ESSettings
from distrl.lifecycle.task import Task
from distrl.models.es import ESModel


class ESAgent(SyncAgent):
    """Actors play one episode with each of many perturbed policies and ship returns;
    the learner moves the parameters towards perturbations that did well.

    A round is `pairs_per_round` antithetic pairs of each actor. What perturbations are
    is known to all tasks, so they never travel. `Rounds.steps_per_round` means nothing
    here: episodes last as long as they do.
    """

    model: ESModel

    def __init__(
        self,
        environment_factory: EnvironmentFactory,
        model: ESModel,
        num_envs: int = 16,
        rounds: Rounds = Rounds(),
        evolution: ESSettings = ESSettings(),
        learning: Learning = Learning(),
    ):
        """`num_envs` environments of each actor, one a perturbed policy.

        Raises ConfigError unless they are even and the episodes of a round are a
        multiple of them.
        """
        super().__init__(environment_factory, num_envs, 1, rounds=rounds)
        self.model, self.evolution, self.learning = model, evolution, learning
        episodes = 2 * evolution.pairs_per_round
        if num_envs % 2 or episodes % num_envs:
            raise ConfigError(
                f"ESAgent.num_envs {num_envs}: expected an even number that divides "
                f"the {episodes} episodes of {evolution.pairs_per_round} pairs "
                "(ESSettings.pairs_per_round)"
            )

    def check(self, spec: EnvironmentSpec, task: Task) -> None:
        """Raises ConfigError for actions that the model cannot choose, and for
        observations that it cannot normalise."""
        self.model.check(spec)

    def make_judged(self, spec: EnvironmentSpec) -> UnperturbedPolicy:
        return UnperturbedPolicy(self.model, spec)

    def record(self, spec: EnvironmentSpec) -> PairShares:
        return pairs_record(self.model, spec)

    def make_collector(
        self, task: Task, spec: EnvironmentSpec, groups: Sequence[VectorEnvironment]
    ) -> ESActor:
        evaluation = self.make_evaluation(task)
        (group,) = groups
        return ESActor(task, group, evaluation, self.model, self.evolution, self.rounds)

    def make_learner(self, task: Task, spec: EnvironmentSpec) -> ESLearner:
        return ESLearner(task, spec, self.model, self.learning, self.evolution)
