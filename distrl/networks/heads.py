"""Heads: from features `[B, D]` to action values `[B, A]`."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from distrl.networks.layers import dense, fan_in_initializer


def linear_head(
    features: tf.Tensor, num_actions: int, hidden: int | None = None
) -> tf.Tensor:
    """Action values by one dense layer, behind a hidden one if asked, `[B, A]`."""
    return dense(_hidden(features, hidden, "hidden"), num_actions, "action_values")


def dueling_head(
    features: tf.Tensor, num_actions: int, hidden: int | None = None
) -> tf.Tensor:
    """Action values from a state value and advantages, `[B, A]`.

        q(s, a) = v(s) + adv(s, a) − mean over b of adv(s, b)

    Wang et al. 2016, "Dueling network architectures for deep reinforcement learning".
    `hidden` is the width of the layer that each stream has of its own (512 in the
    paper); without it both streams are linear in the features.
    """
    if hidden is None:
        # Two linear streams are one matrix: half the operations, forth and back.
        streams = dense(features, 1 + num_actions, "value_and_advantages")
        value, advantages = tf.split(streams, [1, num_actions], axis=1)
    else:
        value = dense(_hidden(features, hidden, "value_hidden"), 1, "value")
        features = _hidden(features, hidden, "advantages_hidden")
        advantages = dense(features, num_actions, "advantages")
    return value + advantages - tf.reduce_mean(advantages, axis=1, keepdims=True)


def _hidden(features: tf.Tensor, size: int | None, name: str) -> tf.Tensor:
    if size is None:
        return features
    return dense(features, size, name, tf.nn.relu, fan_in_initializer(2.0))
