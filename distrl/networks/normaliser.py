"""Observations with mean 0 and variance 1, by statistics that are variables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.nests import flatten_as, unflatten_as
from distrl.core.specs import ArraySpec, Nest, describe, named_leaves
from distrl.networks.placeholders import tensor_name

EPSILON = 1e-8  # is added to the variance
MAX_ABS_NORMAL = 10.0  # what is further from the mean, in deviations, is cut


class NormaliserVariables(NamedTuple):
    """The statistics of one leaf; no gradient and no graph changes them."""

    path: str  # of the leaf
    mean: tf.Variable  # float64 [*shape], 0 at first
    variance: tf.Variable  # float64 [*shape], 1 at first
    count: tf.Variable  # int64 [], rows seen; acting makes nothing of it


def normalised(
    observation_spec: Nest, observation: Nest
) -> tuple[Nest, list[NormaliserVariables]]:
    """The observation, floating-point leaves scaled to float32, and their statistics.

        min(max((x − mean) / √(variance + EPSILON), −MAX_ABS_NORMAL), MAX_ABS_NORMAL)

    by element, in float64: the mean may be far from 0. Other leaves stay as they are.
    Variables: `normaliser/observation_<path>/{mean,variance,count}`, reused where they
    exist. Raises ConfigError if no leaf is floating-point.
    """
    results, variables = [], []
    tensors = flatten_as(observation_spec, observation)
    for (path, leaf), x in zip(named_leaves(observation_spec), tensors, strict=True):
        if np.issubdtype(np.dtype(leaf.dtype), np.floating):
            own = _variables(path, leaf)
            variables.append(own)
            x = _scaled(tf.cast(x, tf.float64), own)
        results.append(x)
    if not variables:
        raise ConfigError(
            "only floating-point observations can be normalised, got "
            f"{describe(observation_spec)}"
        )
    return unflatten_as(observation_spec, results), variables


def _scaled(x: tf.Tensor, own: NormaliserVariables) -> tf.Tensor:
    normal = (x - own.mean) * tf.math.rsqrt(own.variance + EPSILON)
    cut = tf.clip_by_value(normal, -MAX_ABS_NORMAL, MAX_ABS_NORMAL)
    return tf.cast(cut, tf.float32)


def _variables(path: str, leaf: ArraySpec) -> NormaliserVariables:
    def variable(name: str, shape: tuple[int, ...], dtype: tf.DType, first: int):
        start = tf.constant_initializer(first)
        return tf.get_variable(
            name, shape, dtype, start, trainable=False, use_resource=True
        )

    scope = f"normaliser/{tensor_name('observation', path)}"
    with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
        return NormaliserVariables(
            path,
            variable("mean", leaf.shape, tf.float64, 0),
            variable("variance", leaf.shape, tf.float64, 1),
            variable("count", (), tf.int64, 0),
        )
