"""What the learner of PPO does with a whole round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distrl.agents.settings import Learning
from distrl.agents.sync_learner import SyncLearner
from distrl.cluster.messages import Message
from distrl.core import seeds
from distrl.core.rollouts import Shares, joined_rollouts, shares_spec
from distrl.core.specs import EnvironmentSpec
from distrl.learners.policy_session import PPOSession
from distrl.learners.sync_samples import PPOSettings, SyncSamples
from distrl.lifecycle.task import Task
from distrl.models.ppo import PPOModel

_SAMPLES = "samples/"


class PPOLearner(SyncLearner):
    """One learner step a minibatch, one round a round."""

    def __init__(
        self,
        task: Task,
        spec: EnvironmentSpec,
        model: PPOModel,
        learning: Learning,
        settings: PPOSettings,
    ):
        session = PPOSession(model, spec, task.run.seed, learning.num_threads)
        super().__init__(task, spec, model, session, learning)
        sequence = seeds.seed_sequence(task.run.seed, "learner", task.index)
        self._samples = SyncSamples(session, settings, seeds.integer_seed(sequence))
        self._shares = shares_spec(spec, session.raw_spec, model.core_spec)
        self._env_steps = 0

    @property
    def record(self) -> Shares:
        return self._shares

    def train(self, parts: list[Message]) -> None:
        rows = joined_rollouts([part.record for part in parts])
        result = self._samples.train(rows, self._env_steps)
        self._env_steps += result.num_rows
        self.is_finite(list(result.metrics.values()), rows)
        self.task.counters.add("learner_steps", result.num_minibatches)
        self.task.gauges.update(result.metrics)

    def state(self) -> dict[str, np.ndarray]:
        """Also where schedules, shuffles and the scale of rewards are."""
        samples = self._samples.state() | {"env_steps": np.asarray(self._env_steps)}
        named = {f"{_SAMPLES}{name}": array for name, array in samples.items()}
        return super().state() | named

    def restore(self, state: Mapping[str, np.ndarray], learner_steps: int) -> None:
        super().restore(state, learner_steps)
        samples = {
            k.removeprefix(_SAMPLES): v
            for k, v in state.items()
            if k.startswith(_SAMPLES)
        }
        self._env_steps = int(samples.pop("env_steps"))
        self._samples.restore(samples)
