"""Networks of a deterministic policy and of the values of its actions."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

from distrl.core.specs import EnvironmentSpec, Nest
from distrl.networks.layers import dense, fan_in_initializer
from distrl.networks.torsos import mlp

Torso = Callable[[Nest, Nest], tf.Tensor]


def deterministic_policy_network(
    spec: EnvironmentSpec, observation: Nest, num_elements: int, torso: Torso = mlp
) -> tf.Tensor:
    """One number for each element of the action, float32 `[B, num_elements]`.

    Nothing bounds them yet. All are nearly 0 at first, so that nothing that is to
    squash them is flat there.
    """
    with tf.variable_scope("torso"):
        features = torso(spec.observation, observation)
    return dense(features, num_elements, "action", None, _nearly_zero())


def critic_network(
    spec: EnvironmentSpec,
    observation: Nest,
    action: tf.Tensor,
    torso: Torso = mlp,
    hidden: int = 64,
) -> tf.Tensor:
    """What actions are worth in the observations, float32 `[B]`.

    The action, float32 `[B, E]`, joins the features of the observation ahead of a
    hidden layer of its own, so that the torso may be anything. Values are nearly 0 at
    first. As in Lillicrap et al. 2016.
    """
    with tf.variable_scope("torso"):
        features = torso(spec.observation, observation)
    x = tf.concat([features, action], axis=1)
    x = dense(x, hidden, "hidden", tf.nn.relu, fan_in_initializer(2.0))
    return tf.squeeze(dense(x, 1, "value", None, _nearly_zero()), axis=1)


def _nearly_zero() -> tf.Tensor:
    return tf.random_uniform_initializer(-3e-3, 3e-3)
