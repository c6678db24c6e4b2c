"""A learning graph in a local session."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_callable
from distrl.core.records import ReplayBatch
from distrl.core.specs import EnvironmentSpec, leaves
from distrl.learners.graph_session import GraphSession
from distrl.models.learning_graph import LearningModel
from distrl.networks.placeholders import batch_placeholders


class LearningSession(GraphSession):
    """Trains a model on batches; knows no queue and no other task.

    One `train` is one learner step. Targets become equal to what they follow every
    `target_update_period` of them, if the model's graph has one; otherwise its training
    step moves them. `num_threads` share an operation.
    """

    def __init__(
        self,
        model: LearningModel,
        spec: EnvironmentSpec,
        seed: int,
        num_threads: int = 1,
    ):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(seed)
            inputs = batch_placeholders(spec)
            built = model.build_learning(spec, inputs)
        super().__init__(graph, built.parameters, built.variables, num_threads)
        session = self._session
        session.run(built.target_update_op)
        feeds, train = _feeds(inputs), [built.train_op]
        self._metrics = list(built.metrics)
        measured = [built.priorities, *built.metrics.values()]
        self._train = local_callable(session, [built.priorities], feeds, train)
        self._measure = local_callable(session, measured, feeds, train)
        self._update_target = local_callable(session, [], [], [built.target_update_op])
        self._target_update_period = built.target_update_period

    def train(
        self, batch: ReplayBatch, measure: bool = False
    ) -> tuple[np.ndarray, dict[str, float]]:
        """One learner step: |TD errors| float32 [B], and metrics if asked for.

        Both are those under the parameters before the step.
        """
        run = self._measure if measure else self._train
        priorities, *metrics = run(*_feeds(batch))
        self.learner_steps += 1
        period = self._target_update_period
        if period is not None and self.learner_steps % period == 0:
            self._update_target()
        return priorities, dict(zip(self._metrics, map(float, metrics), strict=False))


def _feeds(batch: ReplayBatch) -> list[Any]:
    """The leaves that the graph uses; the ids mean nothing to it."""
    return leaves(batch._replace(id=()))
