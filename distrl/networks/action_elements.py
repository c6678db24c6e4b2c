"""The elements of one leaf of an action: flat, shaped, bounded."""

from __future__ import annotations

import math

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, Bound, describe


def num_elements(spec: ArraySpec) -> int:
    """How many numbers E one action holds. Raises ConfigError for none."""
    if not math.prod(spec.shape):
        raise ConfigError(f"an action without elements: {describe(spec)}")
    return math.prod(spec.shape)


def flat_elements(spec: ArraySpec, action: tf.Tensor) -> tf.Tensor:
    """An action `[B, *shape]` as `[B, E]`, in C order.

    Raises ValueError for another rank, or another trailing shape where it is known.
    """
    expected = tf.TensorShape([None, *spec.shape])
    if action.shape.rank is None or not expected.is_compatible_with(action.shape):
        raise ValueError(f"expected an action {expected}, got {action.shape}")
    return tf.reshape(action, [-1, num_elements(spec)])


def shaped_elements(spec: ArraySpec, flat: tf.Tensor) -> tf.Tensor:
    """`[B, E]` as the action `[B, *shape]`, in C order."""
    return tf.reshape(flat, [-1, *spec.shape])


def shaped_bounds(spec: ArraySpec) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest action, float64 `[*shape]`, infinite where there is none."""
    return (
        _shaped_bound(spec, spec.minimum, -math.inf),
        _shaped_bound(spec, spec.maximum, math.inf),
    )


def _shaped_bound(spec: ArraySpec, bound: Bound, missing: float) -> np.ndarray:
    numbers = np.asarray(missing if bound is None else bound, np.float64)
    if numbers.size not in (1, num_elements(spec)):
        raise ConfigError(f"one bound or one an element: {describe(spec)}")
    return np.broadcast_to(numbers.ravel(), num_elements(spec)).reshape(spec.shape)
