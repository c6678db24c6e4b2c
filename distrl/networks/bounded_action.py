"""Real-valued actions within bounds, as numbers from −1 to 1."""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec, describe
from distrl.networks.action_elements import (
    flat_elements,
    num_elements,
    shaped_bounds,
    shaped_elements,
)


class BoundedAction:
    """The way between an action `[B, *shape]` and its E elements, float32 `[B, E]`.

        action = middle + half · elements        elements from −1 to 1

    So a network's outputs, and noise, have one unit for all elements: half the distance
    of the bounds.
    """

    def __init__(self, spec: EnvironmentSpec):
        """Raises ConfigError, naming the action's spec, unless it is one array of real
        numbers with finite bounds, some way apart."""
        self.spec: ArraySpec = _real_leaf(spec)
        self.num_elements = num_elements(self.spec)
        low, high = (bound.ravel() for bound in shaped_bounds(self.spec))
        if not np.isfinite([low, high]).all() or not (low < high).all():
            raise ConfigError(
                "a deterministic policy needs finite bounds with minimum < maximum, "
                f"got {describe(spec.action)}"
            )
        self._low, self._high = (b.astype(self.spec.dtype) for b in (low, high))
        self._middle = ((low + high) / 2).astype(np.float32)
        self._half = ((high - low) / 2).astype(np.float32)

    def to_environment(self, elements: tf.Tensor) -> tf.Tensor:
        """The action, in the environment's dtype, never beyond its bounds."""
        action = tf.cast(self._middle + self._half * elements, self.spec.dtype)
        # For what is outside, and for rounding at the bounds themselves.
        action = tf.minimum(tf.maximum(action, self._low), self._high)
        return shaped_elements(self.spec, action)

    def elements(self, action: tf.Tensor) -> tf.Tensor:
        """The other way. Raises ValueError for an action of another shape."""
        flat = tf.cast(flat_elements(self.spec, action), tf.float32)
        return (flat - self._middle) / self._half


def _real_leaf(spec: EnvironmentSpec) -> ArraySpec:
    action = spec.action
    real = isinstance(action, ArraySpec) and np.issubdtype(
        np.dtype(action.dtype), np.floating
    )
    if not real:
        raise ConfigError(
            "a deterministic policy needs one array of real numbers as its action, "
            f"got {describe(action)}"
        )
    return action
