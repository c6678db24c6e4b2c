"""Torsos: `torso(observation_spec, observation) -> features [B, D]`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from distrl.core.nests import flatten_as
from distrl.core.specs import ArraySpec, Nest, describe, leaves
from distrl.networks.discrete import indices
from distrl.networks.layers import Activation, conv2d, dense, fan_in_initializer

# Beyond this a scalar integer is read as a number, not as one of so many symbols.
MAX_ONE_HOT = 4096


def mlp(
    observation_spec: Nest,
    observation: Nest,
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Activation = tf.nn.relu,
) -> tf.Tensor:
    """Dense layers over all leaves of the observation, float32 `[B, hidden_sizes[-1]]`.

    A bounded scalar integer becomes one-hot; every other leaf is cast and flattened.
    Leaves are joined in the order of the spec.
    """
    x = flat_observation(observation_spec, observation)
    for index, size in enumerate(hidden_sizes):
        x = dense(x, size, f"hidden_{index}", activation, fan_in_initializer(2.0))
    return x


def flat_observation(observation_spec: Nest, observation: Nest) -> tf.Tensor:
    """All leaves of an observation as one float32 `[B, D]`."""
    tensors = flatten_as(observation_spec, observation)
    parts = [
        _flat_leaf(leaf, tensor)
        for leaf, tensor in zip(leaves(observation_spec), tensors, strict=True)
    ]
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)


def _flat_leaf(spec: ArraySpec, x: tf.Tensor) -> tf.Tensor:
    depth = _one_hot_depth(spec)
    if depth:
        return tf.one_hot(indices(spec, x), depth)
    x = tf.cast(x, tf.float32)
    return x if len(spec.shape) == 1 else tf.reshape(x, [-1, math.prod(spec.shape)])


def _one_hot_depth(spec: ArraySpec) -> int:
    """How many symbols a leaf has, 0 when it is read as numbers."""
    try:
        return spec.num_values if spec.num_values <= MAX_ONE_HOT else 0
    except ValueError:
        return 0


def nature_cnn(observation_spec: Nest, observation: Nest) -> tf.Tensor:
    """Three convolutions and a dense layer over stacked frames, float32 `[B, 512]`.

    Mnih et al. 2015, "Human-level control through deep reinforcement learning". The
    observation is one uint8 leaf `[B, S, H, W]`, stack axis first (84×84 in the
    paper). Raises ValueError for any other spec.
    """
    layers = (32, 8, 4), (64, 4, 2), (64, 3, 1)
    return _convolutions("nature_cnn", observation_spec, observation, layers, 512)


def shallow_cnn(observation_spec: Nest, observation: Nest) -> tf.Tensor:
    """Two convolutions and a dense layer over stacked frames, float32 `[B, 256]`: about
    a third of the work of `nature_cnn`.

    Mnih et al. 2013, "Playing Atari with deep reinforcement learning"; that of A3C, and
    the shallow one of IMPALA. Observations and errors as for `nature_cnn`.
    """
    layers = (16, 8, 4), (32, 4, 2)
    return _convolutions("shallow_cnn", observation_spec, observation, layers, 256)


def board_cnn(
    observation_spec: Nest,
    observation: Nest,
    filters: int = 64,
    width: int = 3,
    hidden_sizes: Sequence[int] = (128,),
) -> tf.Tensor:
    """A convolution over a board and dense layers, float32 `[B, hidden_sizes[-1]]`.

    The observation is one leaf `[B, height, width, planes]`. A `width` as long as what
    wins (four in a row: 4) shows each line whole to some filter. Raises ValueError for
    any other spec, and a board smaller than the filters.
    """
    specs = leaves(observation_spec)
    if len(specs) != 1 or len(specs[0].shape) != 3 or min(specs[0].shape[:2]) < width:
        raise ValueError(
            f"board_cnn needs one leaf [height, width, planes] of {width} fields or "
            f"more each way, got {describe(observation_spec)}"
        )
    (board,) = flatten_as(observation_spec, observation)
    he = fan_in_initializer(2.0)
    x = tf.cast(board, tf.float32)
    x = conv2d(x, filters, width, 1, "conv", tf.nn.relu, he)
    x = tf.reshape(x, [-1, math.prod(x.shape[1:].as_list())])
    for index, size in enumerate(hidden_sizes):
        x = dense(x, size, f"hidden_{index}", tf.nn.relu, he)
    return x


def _convolutions(
    name: str,
    observation_spec: Nest,
    observation: Nest,
    layers: Sequence[tuple[int, int, int]],
    size: int,
) -> tf.Tensor:
    """`layers` of (filters, width, stride), then a dense one of `size`, with ReLU."""
    specs = leaves(observation_spec)
    if len(specs) != 1 or len(specs[0].shape) != 3 or specs[0].dtype != "uint8":
        raise ValueError(
            f"{name} needs one uint8 leaf [stack, height, width], "
            f"got {describe(observation_spec)}"
        )
    (frames,) = flatten_as(observation_spec, observation)
    # Moving the axis while it is still bytes moves a quarter of the memory.
    x = tf.cast(tf.transpose(frames, [0, 2, 3, 1]), tf.float32) * (1.0 / 255.0)
    he = fan_in_initializer(2.0)
    for index, (filters, width, stride) in enumerate(layers):
        x = conv2d(x, filters, width, stride, f"conv_{index}", tf.nn.relu, he)
    x = tf.reshape(x, [-1, math.prod(x.shape[1:].as_list())])
    return dense(x, size, "dense", tf.nn.relu, he)
