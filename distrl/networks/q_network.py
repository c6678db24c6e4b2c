"""Networks from observations to the values of discrete actions."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

from distrl.core.specs import EnvironmentSpec, Nest
from distrl.networks.discrete import discrete_action
from distrl.networks.heads import dueling_head, linear_head
from distrl.networks.torsos import mlp

Torso = Callable[[Nest, Nest], tf.Tensor]


def q_network(
    spec: EnvironmentSpec,
    observation: Nest,
    torso: Torso = mlp,
    dueling: bool = True,
    head_hidden: int | None = None,
) -> tf.Tensor:
    """Values of all actions in each observation, float32 `[B, A]`.

    Raises ConfigError unless the action is one bounded integer.
    """
    num_actions = discrete_action(spec).num_values
    with tf.variable_scope("torso"):
        features = torso(spec.observation, observation)
    with tf.variable_scope("head"):
        head = dueling_head if dueling else linear_head
        return head(features, num_actions, head_hidden)
