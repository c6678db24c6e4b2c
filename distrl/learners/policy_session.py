"""The learning graph of PPO in a local session."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.variables import build_loading
from distrl.cluster.local_session import local_callable
from distrl.core.running_moments import RunningMoments
from distrl.core.specs import EnvironmentSpec, Nest, leaves, named_leaves
from distrl.learners.graph_session import GraphSession
from distrl.models.ppo import PPOBatch, PPOLearningGraph, PPOModel
from distrl.networks.placeholders import placeholders


class PPOSession(GraphSession):
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
            statistics, load_statistics = build_loading(_statistics(built))
        super().__init__(graph, built.parameters, built.variables, num_threads)
        session, feeds = self._session, [*leaves(inputs), *scalars]
        self._train = local_callable(session, [metrics], feeds, [built.train_op])
        self._metrics = list(built.metrics)
        self._load_statistics = local_callable(
            session, [], statistics, [load_statistics]
        )
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

    def restore(self, state: Mapping[str, np.ndarray], learner_steps: int) -> None:
        super().restore(state, learner_steps)
        for own in self._normaliser:
            names = ("mean", "variance", "count")
            arrays = {name: state[getattr(own, name).op.name] for name in names}
            self._moments[own.path].load(arrays)

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
