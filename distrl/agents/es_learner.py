"""What the learner of evolution strategies does with a whole round."""

from __future__ import annotations

from distrl.agents.settings import Learning
from distrl.agents.sync_learner import SyncLearner
from distrl.cluster.messages import Message
from distrl.core.returns_of_pairs import PairShares, joined_pairs, pair_shares_spec
from distrl.core.specs import EnvironmentSpec
from distrl.learners.evolution_session import ESSettings, EvolutionSession
from distrl.lifecycle.task import Task
from distrl.models.es import ESModel


def pairs_record(model: ESModel, spec: EnvironmentSpec) -> PairShares:
    """What actors ship of such a model's policies."""
    return pair_shares_spec([leaf for _, leaf in model.normalised_leaves(spec)])


class ESLearner(SyncLearner):
    """One learner step a round."""

    def __init__(
        self,
        task: Task,
        spec: EnvironmentSpec,
        model: ESModel,
        learning: Learning,
        settings: ESSettings,
    ):
        self._evolution = EvolutionSession(model, spec, task.run.seed, settings)
        super().__init__(task, spec, model, self._evolution, learning)
        self._pairs = pairs_record(model, spec)

    @property
    def record(self) -> PairShares:
        return self._pairs

    def train(self, parts: list[Message]) -> None:
        pairs = joined_pairs([part.record for part in parts])
        metrics = self._evolution.train(pairs)
        self.is_finite(list(metrics.values()), pairs)
        self.task.gauges.update(metrics)
        self.task.counters.add("learner_steps")
