"""Gaussian distributions of real-valued actions, with a diagonal covariance."""

from __future__ import annotations

import math

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.core.specs import ArraySpec
from distrl.networks.action_elements import (
    flat_elements,
    num_elements,
    shaped_bounds,
    shaped_elements,
)

# Beyond it a standard deviation is cut off, without gradient, so that its square and
# that of its inverse stay finite.
MAX_ABS_LOG_STD = 20.0


class DiagonalGaussian:
    """B actions of E independent normal elements, x_e ~ N(mean_e, std_e²).

        log p(x) = −Σ over e of (x_e − mean_e)² / (2 std_e²) + log std_e + log(2π) / 2

    All values are sums over the elements, float32 `[B]`. Gradients reach mean and
    log_std, those of a sample too (x = mean + std · noise).
    """

    def __init__(self, spec: ArraySpec, mean: tf.Tensor, log_std: tf.Tensor):
        """`spec` is that of the raw action; `mean` and `log_std` are float32 `[B, E]`.

        `log_std` is cut to ±MAX_ABS_LOG_STD.
        """
        self._spec = spec
        self.mean = mean  # float32 [B, E]
        limit = MAX_ABS_LOG_STD
        self.log_std = tf.clip_by_value(log_std, -limit, limit)  # float32 [B, E]

    def log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Of float actions `[B, *shape]`. Raises ValueError for another shape."""
        x = flat_elements(self._spec, tf.cast(action, tf.float32))
        z = (x - self.mean) * tf.exp(-self.log_std)
        return -tf.reduce_sum(
            0.5 * tf.square(z) + self.log_std + 0.5 * math.log(2 * math.pi), axis=1
        )

    def entropy(self) -> tf.Tensor:
        """Σ log std + log(2πe) / 2, in nats."""
        constant = 0.5 * math.log(2 * math.pi * math.e)
        return tf.reduce_sum(self.log_std + constant, axis=1)

    def kl(self, other: DiagonalGaussian) -> tf.Tensor:
        """KL(self ‖ other), with r = std / std of the other:

        Σ r² / 2 + (mean − its mean)² / (2 its std²) − 1/2 − log r
        """
        log_ratio = self.log_std - other.log_std
        apart = (self.mean - other.mean) * tf.exp(-other.log_std)
        # expm1: the difference of near equals would drown in rounding.
        spread = tf.math.expm1(2.0 * log_ratio) - 2.0 * log_ratio
        return 0.5 * tf.reduce_sum(spread + tf.square(apart), axis=1)

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Actions float32 `[B, *shape]`, a function of the seed, int32 `[2]`."""
        noise = tf.random.stateless_normal(tf.shape(self.mean), seed)
        return shaped_elements(self._spec, self.mean + tf.exp(self.log_std) * noise)

    def mode(self) -> tf.Tensor:
        """The mean, `[B, *shape]`."""
        return shaped_elements(self._spec, self.mean)


class GaussianFactory:
    """Diagonal Gaussians whose actions are clipped to the bounds by the environment's
    side alone.

    Trajectories keep the raw, unclipped action, of which `log_prob` is; `raw_spec` is
    float32 without bounds. Parameters are the means and, with `state_dependent_std`,
    behind them what is added to `initial_log_std`. Otherwise log_std is a variable
    `log_std [E]`, made in the current variable scope by `__call__`.
    """

    def __init__(
        self,
        spec: ArraySpec,
        state_dependent_std: bool = False,
        initial_log_std: float = 0.0,
    ):
        self.raw_spec = ArraySpec(spec.shape, "float32")
        self._dtype = np.dtype(spec.dtype)
        self._low, self._high = (b.astype(self._dtype) for b in shaped_bounds(spec))
        self._size = num_elements(spec)
        self._state_dependent_std = state_dependent_std
        self._initial_log_std = initial_log_std
        self.num_parameters = self._size * (2 if state_dependent_std else 1)

    def __call__(self, parameters: tf.Tensor) -> DiagonalGaussian:
        """The distributions with parameters float32 `[B, P]`."""
        return DiagonalGaussian(self.raw_spec, *self._mean_and_log_std(parameters))

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        """What the environment takes, NumPy, in its dtype: clipped to finite bounds."""
        return np.clip(raw.astype(self._dtype), self._low, self._high)

    def to_environment_graph(self, raw: tf.Tensor) -> tf.Tensor:
        """The same as a tensor."""
        return tf.clip_by_value(tf.cast(raw, self._dtype), self._low, self._high)

    def _mean_and_log_std(self, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Each float32 [B, E]."""
        if self._state_dependent_std:
            mean, change = tf.split(parameters, 2, axis=1)
            return mean, change + self._initial_log_std
        log_std = tf.get_variable(
            "log_std",
            [self._size],
            initializer=tf.constant_initializer(self._initial_log_std),
            use_resource=True,
        )
        return parameters, log_std + tf.zeros_like(parameters)
