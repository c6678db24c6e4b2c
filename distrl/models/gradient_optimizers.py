"""What becomes of a gradient; a model is given one of these by reference."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

GradientOptimizer = Callable[[tf.Tensor], tf.train.Optimizer]  # of a learning rate


def rmsprop(
    learning_rate: tf.Tensor,
    decay: float = 0.99,
    momentum: float = 0.0,
    epsilon: float = 0.1,
) -> tf.train.Optimizer:
    """RMSProp as in the paper; ε is added to the mean square, below the root."""
    return tf.train.RMSPropOptimizer(learning_rate, decay, momentum, epsilon)


def adam(learning_rate: tf.Tensor, epsilon: float = 1e-8) -> tf.train.Optimizer:
    """Adam, with TensorFlow's β of 0.9 and 0.999."""
    return tf.train.AdamOptimizer(learning_rate, epsilon=epsilon)
