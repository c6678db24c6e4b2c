"""Values in units of their own spread, whatever the size of the rewards."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import tensorflow.compat.v1 as tf


class PopArtStatistics(NamedTuple):
    """Moments of the value targets: parameters, but without gradient."""

    mean: tf.Variable  # float64 [], 0 at first
    second_moment: tf.Variable  # float64 [], 1 at first


@dataclasses.dataclass(frozen=True)
class PopArt:
    """The value head predicts (value − mean) / std, by moments of the targets.

        mean := (1 − step_size) mean + step_size · mean of the targets
        second_moment: the same with the squares of the targets
        std = √(second_moment − mean²), kept within [min_std, max_std]

    after every update, and at once kernel and bias of the head such that no value
    changes:

        kernel := kernel · std / new std
        bias := (bias · std + mean − new mean) / new std

    The head is the dense layer of scope `value_head` inside the network. Van Hasselt et
    al. 2016, "Learning values across many orders of magnitude"; the policy's advantages
    divided by std, and the limits: Hessel et al. 2018, "Multi-task deep reinforcement
    learning with PopArt". Raises ValueError for a number out of its range.
    """

    step_size: float = 3e-4  # in (0, 1]
    min_std: float = 1e-4  # above 0
    max_std: float = 1e6
    value_head: str = "value_head"

    def __post_init__(self) -> None:
        if not 0 < self.step_size <= 1:
            raise ValueError(f"step_size must be in (0, 1], got {self.step_size}")
        if not 0 < self.min_std <= self.max_std:
            raise ValueError(
                "expected 0 < min_std <= max_std, got "
                f"min_std {self.min_std}, max_std {self.max_std}"
            )

    def statistics(self) -> PopArtStatistics:
        """In the scope "network/popart", made where they do not exist."""

        def variable(name: str, first: int) -> tf.Variable:
            start = tf.constant_initializer(first)
            return tf.get_variable(
                name, (), tf.float64, start, trainable=False, use_resource=True
            )

        with tf.variable_scope("network/popart", reuse=tf.AUTO_REUSE):
            return PopArtStatistics(variable("mean", 0), variable("second_moment", 1))

    def std(self, mean: tf.Tensor, second_moment: tf.Tensor) -> tf.Tensor:
        """float64 [], of these moments."""
        variance = tf.maximum(second_moment - tf.square(mean), self.min_std**2)
        return tf.minimum(tf.sqrt(variance), self.max_std)

    def unnormalised(self, value: tf.Tensor) -> tf.Tensor:
        """Values in units of reward, float32 `[R]`, from outputs of the head."""
        mean, second_moment = self.statistics()
        std = self.std(mean, second_moment)
        return tf.cast(mean + std * tf.cast(value, tf.float64), tf.float32)

    def build_update(
        self, num_rows: tf.Tensor, target_sum: tf.Tensor, square_sum: tf.Tensor
    ) -> tf.Operation:
        """Moves statistics and head by targets of which these are the sums, float64
        `[]`; no rows move nothing.

        The parameters are read where it is built: under the control dependencies of
        whatever changes them before. Raises ValueError where there is no such head.
        """
        kernel, bias = self._head()
        mean, second_moment = (each.read_value() for each in self.statistics())
        some = tf.cast(num_rows > 0, tf.float64) * self.step_size
        rows = tf.maximum(num_rows, 1.0)
        new_mean = mean + some * (target_sum / rows - mean)
        new_second = second_moment + some * (square_sum / rows - second_moment)
        std, new_std = self.std(mean, second_moment), self.std(new_mean, new_second)
        old_kernel, old_bias = (
            tf.cast(each.read_value(), tf.float64) for each in (kernel, bias)
        )
        new_kernel = old_kernel * std / new_std
        new_bias = (old_bias * std + mean - new_mean) / new_std
        moments = self.statistics()
        return tf.group(
            kernel.assign(tf.cast(new_kernel, tf.float32), read_value=False),
            bias.assign(tf.cast(new_bias, tf.float32), read_value=False),
            moments.mean.assign(new_mean, read_value=False),
            moments.second_moment.assign(new_second, read_value=False),
        )

    def _head(self) -> tuple[tf.Variable, tf.Variable]:
        scope = f"network/{self.value_head}/"
        found = {v.op.name.removeprefix(scope): v for v in tf.global_variables(scope)}
        if set(found) != {"kernel", "bias"} or found["kernel"].shape[1:] != [1]:
            raise ValueError(
                f"PopArt needs a dense layer of one output, value_head "
                f"{self.value_head!r}; of {scope!r} there are {sorted(found)}"
            )
        return found["kernel"], found["bias"]
