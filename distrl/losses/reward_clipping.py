"""Rewards of bounded size, as learners of many games see them."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf


def abs_one(rewards: tf.Tensor) -> tf.Tensor:
    """Rewards cut to [−1, 1]."""
    return tf.clip_by_value(rewards, -1.0, 1.0)


def soft_asymmetric(rewards: tf.Tensor) -> tf.Tensor:
    """5 tanh(r / 5), of which negative ones count 0.3 times.

    Large rewards differ only a little, small ones stay as they are, and a loss weighs
    less than a gain: exploration is not given up after a few failures. Espeholt et al.
    2018, appendix D.
    """
    squeezed = 5.0 * tf.tanh(rewards / 5.0)
    return tf.where_v2(rewards < 0.0, 0.3 * squeezed, squeezed)


_MODES: dict[str | None, Callable[[tf.Tensor], tf.Tensor]] = {
    None: tf.identity,
    "abs_one": abs_one,
    "soft_asymmetric": soft_asymmetric,
}


def check_reward_clipping(mode: str | None) -> None:
    """Raises ValueError, listing the modes, for an unknown one."""
    if mode not in _MODES:
        raise ValueError(f"reward_clipping must be one of {[*_MODES]}, got {mode!r}")


def clipped_rewards(rewards: tf.Tensor, mode: str | None) -> tf.Tensor:
    """Float32 rewards of any shape by mode: None, "abs_one" or "soft_asymmetric".

    Raises ValueError for another mode.
    """
    check_reward_clipping(mode)
    return _MODES[mode](rewards)
