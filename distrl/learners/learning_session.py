"""A learning graph in a local session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.local_session import local_session_config
from distrl.checkpoints.parameters import ParameterSpec
from distrl.checkpoints.policy import parameter_specs
from distrl.core.records import ReplayBatch
from distrl.core.specs import EnvironmentSpec, leaves
from distrl.models.dqn import DQNModel
from distrl.networks.placeholders import batch_placeholders


class LearningSession:
    """Trains a model on batches; knows no queue and no other task.

    One `train` is one learner step. The target network is updated every
    `model.target_update_period` of them.
    """

    def __init__(
        self, model: DQNModel, spec: EnvironmentSpec, seed: int, num_threads: int = 1
    ):
        graph = tf.Graph()
        with graph.as_default():
            tf.set_random_seed(seed)
            inputs = batch_placeholders(spec)
            self._graph = model.build_learning(spec, inputs)
            fetches = [
                self._graph.priorities,
                self._graph.train_op,
            ]
            initialise = tf.variables_initializer(self._graph.variables)
            loads = [tf.placeholder(v.dtype, v.shape) for v in self._graph.variables]
            load = tf.group(
                *(v.assign(p) for v, p in zip(self._graph.variables, loads, strict=True))
            )
            feeds = leaves(inputs)
            feeds.pop()  # the ids mean nothing to the graph
        self._session = tf.Session(graph=graph, config=local_session_config(num_threads, _has_gpu()))
        self._session.run(initialise)
        self._session.run(self._graph.target_update_op)
        make = self._session.make_callable
        self._train: Callable[..., Any] = make(fetches, feeds)
        self._measure = make([fetches, self._graph.metrics], feeds)
        self._parameters = make(self._graph.parameters)
        self._update_target = make(self._graph.target_update_op)
        self._load = make(load, loads)
        self._variables = make(self._graph.variables)
        graph.finalize()
        self._target_update_period = model.target_update_period
        self.learner_steps = 0

    def train(self, batch: ReplayBatch, measure: bool = False) -> tuple[Any, dict]:
        """One learner step: (priorities [B], metrics where they were asked for)."""
        feeds = leaves(batch)
        feeds.pop()
        metrics: dict[str, Any] = {}
        if measure:
            (priorities, _), metrics = self._measure(*feeds)
        else:
            priorities, _ = self._train(*feeds)
        self.learner_steps += 1
        if self.learner_steps % self._target_update_period == 0:
            self._update_target()
        return priorities, metrics

    @property
    def parameter_specs(self) -> list[ParameterSpec]:
        """Name, shape and dtype of every online parameter."""
        return parameter_specs(self._graph.parameters)

    def parameters(self) -> list[np.ndarray]:
        """The online parameters, in the order of the acting graph."""
        return self._parameters()

    def state(self) -> dict[str, np.ndarray]:
        """Every variable by its name."""
        names = [variable.op.name for variable in self._graph.variables]
        return dict(zip(names, self._variables(), strict=True))

    def restore(self, state: dict[str, np.ndarray], learner_steps: int) -> None:
        """Raises ValueError when names or shapes differ."""
        names = [variable.op.name for variable in self._graph.variables]
        if set(names) != set(state):
            raise ValueError(f"expected the variables {names}, got {sorted(state)}")
        self._load(*(state[name] for name in names))
        self.learner_steps = learner_steps

    def close(self) -> None:
        self._session.close()


def _has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))
