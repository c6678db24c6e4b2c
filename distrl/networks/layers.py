"""Layers with variables of their own. No Keras."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

Activation = Callable[[tf.Tensor], tf.Tensor] | None
Initializer = Callable[..., tf.Tensor]


def fan_in_initializer(scale: float = 1.0) -> Initializer:
    """Truncated normal of variance `scale` / inputs (LeCun at 1, He at 2)."""
    return tf.variance_scaling_initializer(scale, "fan_in", "truncated_normal")


def dense(
    x: tf.Tensor,
    units: int,
    name: str,
    activation: Activation = None,
    kernel_initializer: Initializer | None = None,
) -> tf.Tensor:
    """`activation(x · kernel + bias)`, float32 `[B, units]`.

    `x` is float32 `[B, D]` with a static D; raises ValueError otherwise. Variables:
    `<name>/kernel [D, units]` and `<name>/bias [units]`, the latter zero at first.
    """
    if x.shape.rank != 2 or x.shape[1] is None:
        raise ValueError(f"{name}: expected [B, D] with a static D, got {x.shape}")
    with tf.variable_scope(name):
        kernel = _kernel([x.shape[1], units], kernel_initializer)
        y = tf.nn.bias_add(tf.matmul(x, kernel), _bias(units))
    return activation(y) if activation else y


def conv2d(
    x: tf.Tensor,
    filters: int,
    kernel: int,
    stride: int,
    name: str,
    activation: Activation = None,
    kernel_initializer: Initializer | None = None,
) -> tf.Tensor:
    """`activation(x ∗ kernel + bias)` without padding, `[B, H', W', filters]`.

    `x` is float32 `[B, H, W, C]` with static H, W, C, none smaller than the kernel;
    raises ValueError otherwise. `kernel` and `stride` count pixels in both directions.
    """
    if x.shape.rank != 4 or None in x.shape[1:].as_list():
        raise ValueError(f"{name}: expected a static [B, H, W, C], got {x.shape}")
    if min(x.shape[1], x.shape[2]) < kernel:
        raise ValueError(f"{name}: a kernel of {kernel} does not fit into {x.shape}")
    with tf.variable_scope(name):
        shape = [kernel, kernel, x.shape[3], filters]
        y = tf.nn.conv2d(x, _kernel(shape, kernel_initializer), stride, "VALID")
        y = tf.nn.bias_add(y, _bias(filters))
    return activation(y) if activation else y


def _kernel(shape: list[int], initializer: Initializer | None) -> tf.Variable:
    initializer = initializer or fan_in_initializer()
    return tf.get_variable("kernel", shape, initializer=initializer, use_resource=True)


def _bias(size: int) -> tf.Variable:
    zeros = tf.zeros_initializer()
    return tf.get_variable("bias", [size], initializer=zeros, use_resource=True)
