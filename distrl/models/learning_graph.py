"""What a learner needs of a model that trains on replayed transitions."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import tensorflow.compat.v1 as tf

from distrl.core.records import ReplayBatch
from distrl.core.specs import EnvironmentSpec, Nest


class LearningGraph(NamedTuple):
    """What a learner fetches, runs and saves.

    All values, priorities too, are those under the parameters *before* the update:
    every read of a parameter comes before it. Only `train_op` and
    `target_update_op` change anything, so fetch `train_op` along with the values.
    """

    train_op: tf.Operation  # one update of the online parameters
    priorities: tf.Tensor  # float32 [B], |TD error|
    loss: tf.Tensor  # float32 [], of the values
    metrics: dict[str, tf.Tensor]  # float32 [] each
    parameters: list[tf.Variable]  # the online ones, in the order of the acting graph
    target_update_op: tf.Operation  # target := online; run it after initialisation
    target_update_period: int | None  # learner steps; None: train_op moves the targets
    variables: list[tf.Variable]  # all that a checkpoint needs


class LearningModel(Protocol):
    """A model that a learner trains and exports."""

    @property
    def core_spec(self) -> Nest:
        """The state of one stream of a recurrent core, () without one."""

    def check(self, spec: EnvironmentSpec) -> None:
        """Raises ConfigError, naming the spec, for actions it cannot choose."""

    def build_learning(
        self, spec: EnvironmentSpec, batch: ReplayBatch
    ) -> LearningGraph:
        """The training step of a batch, in the current graph."""

    def build_greedy(
        self, spec: EnvironmentSpec, observation_ph: Nest, core_ph: Nest = ()
    ) -> tuple[Nest, dict[str, tf.Tensor]]:
        """What the environment takes `[N, ...]`, and what else an export holds."""
