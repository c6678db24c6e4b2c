"""Categorical distributions of bounded integers, one or several in an action."""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, describe
from distrl.networks.action_elements import (
    flat_elements,
    num_elements,
    shaped_bounds,
    shaped_elements,
)
from distrl.networks.action_mask import ILLEGAL

# More logits than this are a mistake: an action that is an image, or without bounds.
MAX_LOGITS = 2**16


class Categorical:
    """B actions of E independent elements, each one of its own number of values.

        log p(a) = Σ over e of log softmax(logits[e])[a_e − minimum_e]

    A scalar has one element; entropy and KL divergence are sums over elements as
    well, all float32 `[B]`. Actions are in the environment's numbering and dtype.
    Gradients reach the logits; finite logits of any size are fine.
    """

    def __init__(self, spec: ArraySpec, logits: tf.Tensor):
        """`logits` is float32 `[B, E, V]`, V the largest number of values."""
        self._spec = spec
        self._logits = logits
        self._log_probs = tf.nn.log_softmax(logits)

    def log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Of integer actions `[B, *shape]`. Raises ValueError for another shape.

        An action out of bounds is an error of the run.
        """
        index = flat_elements(self._spec, tf.cast(action, tf.int64)) - self._minimum
        # On two axes, where TensorFlow adds no check that is control flow.
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reshape(index, [-1]), logits=self._rows()
        )
        return -tf.reduce_sum(tf.reshape(losses, tf.shape(index)), axis=1)

    def entropy(self) -> tf.Tensor:
        """−Σ p log p, in nats."""
        probs = tf.exp(self._log_probs)
        return -tf.reduce_sum(probs * self._log_probs, axis=[1, 2])

    def kl(self, other: Categorical) -> tf.Tensor:
        """KL(self ‖ other) = Σ p (log p − log q)."""
        difference = self._log_probs - other._log_probs
        return tf.reduce_sum(tf.exp(self._log_probs) * difference, axis=[1, 2])

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Actions `[B, *shape]`, a function of the seed, int32 `[2]`."""
        index = tf.random.stateless_categorical(self._rows(), 1, seed, dtype=tf.int64)
        return self._action(tf.reshape(index, [-1, num_elements(self._spec)]))

    def mode(self) -> tf.Tensor:
        """The first of the most probable actions, `[B, *shape]`."""
        return self._action(tf.argmax(self._logits, axis=2))

    @property
    def _minimum(self) -> np.ndarray:
        return shaped_bounds(self._spec)[0].astype(np.int64).ravel()

    def _rows(self) -> tf.Tensor:
        return tf.reshape(self._logits, [-1, self._logits.shape[2]])

    def _action(self, index: tf.Tensor) -> tf.Tensor:
        action = tf.cast(index + self._minimum, self._spec.dtype)
        return shaped_elements(self._spec, action)


class CategoricalFactory:
    """Categorical distributions from logits: those of element 0, then of 1, …

    Trajectories keep the actions that the environment takes: `raw_spec` is its spec.
    """

    def __init__(self, spec: ArraySpec):
        """Raises ConfigError unless all elements are bounded, with MAX_LOGITS logits
        in all at most."""
        low, high = shaped_bounds(spec)
        counts = (high - low + 1).ravel()
        if not (counts >= 1).all() or not counts.sum() <= MAX_LOGITS:
            raise ConfigError(
                "a categorical action needs bounds, minimum <= maximum, and at most "
                f"{MAX_LOGITS} values in all, got {describe(spec)}"
            )
        self.raw_spec = spec
        self._counts = counts.astype(np.int64)
        self.num_parameters = int(self._counts.sum())

    def __call__(self, parameters: tf.Tensor) -> Categorical:
        """The distributions with logits float32 `[B, P]`."""
        counts, largest = self._counts, int(self._counts.max())
        if (counts == largest).all():
            logits = tf.reshape(parameters, [-1, len(counts), largest])
            return Categorical(self.raw_spec, logits)
        first = np.cumsum(counts) - counts
        exists = np.arange(largest) < counts[:, None]  # [E, V]
        place = np.where(exists, first[:, None] + np.arange(largest), 0)
        logits = tf.gather(parameters, place, axis=1)  # [B, E, V]
        return Categorical(self.raw_spec, tf.where_v2(exists, logits, ILLEGAL))

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        """What the environment takes, NumPy: the action itself."""
        return raw

    def to_environment_graph(self, raw: tf.Tensor) -> tf.Tensor:
        """The same as a tensor."""
        return raw
