"""A learning graph in a local session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.parameters import ParameterSpec
from distrl.checkpoints.variables import (
    build_loading,
    parameter_specs,
    select_parameters,
)
from distrl.cluster.local_session import local_callable, local_session_config
from distrl.core.records import ReplayBatch
from distrl.core.specs import EnvironmentSpec, leaves
from distrl.models.learning_graph import LearningModel
from distrl.networks.placeholders import batch_placeholders


class LearningSession:
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
            initialise = tf.variables_initializer(built.variables)
            values, load = build_loading(built.variables)
            graph.finalize()
        gpu = bool(tf.config.list_physical_devices("GPU"))
        config = local_session_config(num_threads, gpu)
        self._session = session = tf.Session(graph=graph, config=config)
        session.run(initialise)
        session.run(built.target_update_op)
        feeds, train = _feeds(inputs), [built.train_op]
        self._metrics = list(built.metrics)
        measured = [built.priorities, *built.metrics.values()]
        self._train = local_callable(session, [built.priorities], feeds, train)
        self._measure = local_callable(session, measured, feeds, train)
        self._parameters = local_callable(session, built.parameters, [])
        self._variables = local_callable(session, built.variables, [])
        self._load = local_callable(session, [], values, [load])
        self._update_target = local_callable(session, [], [], [built.target_update_op])
        self._target_update_period = built.target_update_period
        self._variable_specs = parameter_specs(built.variables)
        self.parameter_specs: list[ParameterSpec] = parameter_specs(built.parameters)
        self.learner_steps = 0

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

    def parameters(self) -> list[np.ndarray]:
        """The online parameters, in the order of `parameter_specs`."""
        return self._parameters()

    def named(self, parameters: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Parameters in the order of `parameter_specs`, by their names."""
        names = [spec.name for spec in self.parameter_specs]
        return dict(zip(names, parameters, strict=True))

    def state(self) -> dict[str, np.ndarray]:
        """Every variable by its name."""
        names = [spec.name for spec in self._variable_specs]
        return dict(zip(names, map(np.asarray, self._variables()), strict=True))

    def restore(self, state: Mapping[str, np.ndarray], learner_steps: int) -> None:
        """Raises ValueError, naming the variable, for what is missing or differs."""
        self._load(*select_parameters(self._variable_specs, state))
        self.learner_steps = learner_steps

    def close(self) -> None:
        self._session.close()


def _feeds(batch: ReplayBatch) -> list[Any]:
    """The leaves that the graph uses; the ids mean nothing to it."""
    return leaves(batch._replace(id=()))
