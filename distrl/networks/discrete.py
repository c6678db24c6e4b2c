"""Bounded integers: their numbering, and the best of them."""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec, describe


def discrete_action(spec: EnvironmentSpec) -> ArraySpec:
    """The action's spec; ConfigError, naming it, unless it is one bounded integer."""
    try:
        spec.action.num_values  # noqa: B018  raises for anything else
    except (AttributeError, ValueError):
        raise ConfigError(
            f"action values need one discrete action, got {describe(spec.action)}"
        ) from None
    return spec.action


def smallest_value(spec: ArraySpec) -> int:
    """The first of the values that a bounded scalar integer takes."""
    return int(np.asarray(spec.minimum).item())


def indices(spec: ArraySpec, values: tf.Tensor) -> tf.Tensor:
    """How far values lie above the smallest one, int64 of the same shape.

    For a `spec` with bounds; whether the values keep to them is not looked at.
    """
    minimum = smallest_value(spec)
    values = tf.cast(values, tf.int64)
    return values - minimum if minimum else values


def greedy_action(spec: EnvironmentSpec, action_values: tf.Tensor) -> tf.Tensor:
    """The first of the best actions, in the environment's numbering and dtype, `[B]`.

    `action_values` is `[B, A]`. Raises ConfigError unless the action is discrete.
    """
    action = discrete_action(spec)
    best = tf.argmax(action_values, axis=1) + smallest_value(action)
    return tf.cast(best, action.dtype)
