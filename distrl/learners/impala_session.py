"""The learning graph of IMPALA in a local session, over one device or several."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_callable
from distrl.core.nests import map_nest
from distrl.core.schedules import Schedule, constant
from distrl.core.specs import EnvironmentSpec, leaves
from distrl.core.trajectories import Trajectories
from distrl.learners.graph_session import GraphSession
from distrl.models.impala import ImpalaModel
from distrl.models.impala_batch import time_major
from distrl.networks.placeholders import placeholders

Loaded = list[np.ndarray]  # what the towers are fed with


@dataclasses.dataclass(frozen=True)
class ImpalaSettings:
    """How batches become updates. Raises ValueError without a device."""

    learning_rate: Schedule = constant(5e-4)  # over env steps trained on
    devices: Sequence[str] = ("/cpu:0",)  # a batch is split over them

    def __post_init__(self) -> None:
        if not self.devices or isinstance(self.devices, str):
            raise ValueError(f"expected a list of devices, got {self.devices!r}")


class ImpalaSession(GraphSession):
    """Trains a model on unrolls; knows no queue and no other task.

        loaded = session.load(trajectories)
        metrics = session.train(loaded)

    One `train` is one learner step. The unrolls of a batch are split over `devices`,
    whose towers share all variables; their gradients are added and applied once, by the
    gradient optimizer of the model. The learning rate is read at `env_steps`, the steps
    that were trained on. It is a `Trainer` of the asynchronous samples optimizer.
    """

    def __init__(
        self,
        model: ImpalaModel,
        spec: EnvironmentSpec,
        num_steps: int,
        seed: int,
        settings: ImpalaSettings,
        num_threads: int = 1,
    ):
        """`num_steps` is T of the unrolls. Raises ConfigError, naming the leaf, for
        actions without a distribution."""
        unrolls = _graph_leaves(model.trajectories_spec(spec, num_steps))
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(seed)
            rate = tf.placeholder(tf.float32, [], "learning_rate")
            inputs, towers = [], []
            for index, device in enumerate(settings.devices):
                with tf.device(device):
                    inputs.append(placeholders(unrolls, f"tower_{index}"))
                    towers.append(model.build_tower(spec, time_major(inputs[-1])))
            built = model.build_apply(towers, rate)
            num_rows = tf.add_n([tower.num_rows for tower in towers])
            # One tensor of all metrics: a fetch each would cost more than they do.
            metrics = tf.stack([num_rows, *built.metrics.values()])
        super().__init__(graph, built.parameters, built.variables, num_threads)
        feeds = [leaf for tower in inputs for leaf in leaves(tower)]
        self._train = local_callable(
            self._session, [metrics], [*feeds, rate], [built.train_op]
        )
        self._metrics = list(built.metrics)
        self._num_towers = len(settings.devices)
        self._learning_rate = settings.learning_rate
        self.env_steps = 0

    def load(self, batch: Trajectories) -> Loaded:
        """The unrolls, split over the towers, as views; a tower may get none."""
        size, number = len(batch.first_is_last), self._num_towers
        ends = [size * tower // number for tower in range(number + 1)]
        parts = [
            map_nest(lambda leaf, at=slice(*pair): leaf[at], _graph_leaves(batch))
            for pair in zip(ends, ends[1:], strict=False)
        ]
        return [leaf for part in parts for leaf in leaves(part)]

    def train(self, loaded: Loaded) -> dict[str, float]:
        """One learner step: metrics under the parameters before it, and `num_rows`, the
        env steps in it.

        Raises ValueError, naming the placeholder, for a leaf that does not fit.
        """
        rate = self._learning_rate(self.env_steps)
        (found,) = self._train(*loaded, np.asarray(rate, np.float32))
        num_rows, *metrics = found.tolist()
        self.learner_steps += 1
        self.env_steps += int(num_rows)
        named = dict(zip(self._metrics, metrics, strict=True))
        return named | {"num_rows": num_rows, "learning_rate": rate}

    def rows(self, loaded: Loaded) -> int:
        """The unrolls in it."""
        number = len(loaded) // self._num_towers
        return sum(len(leaf) for leaf in loaded[::number])


def _graph_leaves(unrolls: Trajectories) -> Trajectories:
    """What the graph uses; versions mean nothing to it."""
    return unrolls._replace(version=())
