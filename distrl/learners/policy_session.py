"""The learning graph of PPO in a local session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.parameters import ParameterSpec
from distrl.checkpoints.variables import (
    build_loading,
    parameter_specs,
    select_parameters,
)
from distrl.cluster.local_session import local_callable, local_session_config
from distrl.core.running_moments import RunningMoments
from distrl.core.specs import EnvironmentSpec, Nest, leaves, named_leaves
from distrl.models.ppo import PPOBatch, PPOLearningGraph, PPOModel
from distrl.networks.placeholders import placeholders


class PPOSession:
    """Trains a model on minibatches; knows no round, no queue and no other task.

    One `train` is one learner step. `num_threads` share an operation.
    """

    def __init__(
        self, model: PPOModel, spec: EnvironmentSpec, seed: int, num_threads: int = 1
    ):
        """Raises ConfigError, naming the leaf, for actions without a distribution."""
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(seed)
            inputs = placeholders(model.batch_spec(spec), "batch")
            scalars = [
                tf.placeholder(tf.float32, [], name)
                for name in ("learning_rate", "clip")
            ]
            built = model.build_learning(spec, inputs, *scalars)
            # One tensor of all metrics: a fetch each would cost more than they do.
            metrics = tf.stack(list(built.metrics.values()))
            initialise = tf.variables_initializer(built.variables)
            values, load = build_loading(built.variables)
            statistics, load_statistics = build_loading(_statistics(built))
            graph.finalize()
        gpu = bool(tf.config.list_physical_devices("GPU"))
        config = local_session_config(num_threads, gpu)
        self._session = session = tf.Session(graph=graph, config=config)
        session.run(initialise)
        feeds = [*leaves(inputs), *scalars]
        self._train = local_callable(session, [metrics], feeds, [built.train_op])
        self._metrics = list(built.metrics)
        self._parameters = local_callable(session, built.parameters, [])
        self._variables = local_callable(session, built.variables, [])
        self._load = local_callable(session, [], values, [load])
        self._load_statistics = local_callable(
            session, [], statistics, [load_statistics]
        )
        self._variable_specs = parameter_specs(built.variables)
        self.parameter_specs: list[ParameterSpec] = parameter_specs(built.parameters)
        self.learner_steps = 0
        self.spec, self.core = spec, model.core
        self.raw_spec: Nest = model.distribution(spec.action).raw_spec
        self._normaliser = built.normaliser
        self._moments = {
            own.path: RunningMoments(tuple(own.mean.shape.as_list()))
            for own in built.normaliser
        }

    def train(
        self, batch: PPOBatch, learning_rate: float, clip: float
    ) -> dict[str, float]:
        """One learner step: metrics under the parameters before it.

        Raises ValueError, naming the placeholder, for a leaf that does not fit.
        """
        scalars = np.asarray(learning_rate, np.float32), np.asarray(clip, np.float32)
        (metrics,) = self._train(*leaves(batch), *scalars)
        self.learner_steps += 1
        return dict(zip(self._metrics, metrics.tolist(), strict=True))

    def update_normaliser(self, observation: Nest) -> None:
        """Takes rows `[M, ...]` into the statistics, which change at once.

        Nothing happens without a normaliser. Raises ValueError, naming the leaf, for
        NaN and inf; then no statistics have changed.
        """
        if not self._moments:
            return
        news = {path: self._moments_of(path, observation) for path in self._moments}
        for path, moments in news.items():
            self._moments[path].merge(moments)
        arrays = [moments.state() for moments in self._moments.values()]
        names = ("mean", "variance", "count")
        self._load_statistics(*[np.asarray(a[name]) for a in arrays for name in names])

    def parameters(self) -> list[np.ndarray]:
        """What acting needs, in the order of `parameter_specs`."""
        return [np.asarray(array) for array in self._parameters()]  # no np.int64

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
        for own in self._normaliser:
            names = ("mean", "variance", "count")
            arrays = {name: state[getattr(own, name).op.name] for name in names}
            self._moments[own.path].load(arrays)
        self.learner_steps = learner_steps

    def close(self) -> None:
        self._session.close()

    def _moments_of(self, path: str, observation: Nest) -> RunningMoments:
        """Those of the leaf at `path` alone, of these rows."""
        moments = RunningMoments(self._moments[path].mean.shape)
        try:
            moments.update(dict(named_leaves(observation))[path])
        except ValueError as error:
            raise ValueError(f"observation, leaf {path!r}: {error}") from error
        return moments


def _statistics(built: PPOLearningGraph) -> list[tf.Variable]:
    return [variable for own in built.normaliser for variable in own[1:]]
