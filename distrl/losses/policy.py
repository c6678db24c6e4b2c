"""Losses of proximal policy optimisation."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from distrl.losses.ranks import check_ranks

# exp of more than this, times an advantage, is as good as infinite.
MAX_ABS_LOG_RATIO = 20.0


class SurrogateExtra(NamedTuple):
    """What else the clipped surrogate knows, row by row and without gradient."""

    ratio: tf.Tensor  # float32 [B], π(a|s) / behaviour(a|s)
    clipped: tf.Tensor  # float32 [B], 1 where the ratio is outside 1 ± clip
    approximate_kl: tf.Tensor  # float32 [B], ratio − 1 − log ratio, 0 at least


def clipped_surrogate(
    log_prob: tf.Tensor,
    behaviour_log_prob: tf.Tensor,
    advantages: tf.Tensor,
    clip: float | tf.Tensor,
) -> tuple[tf.Tensor, SurrogateExtra]:
    """The loss of each action, float32 `[B]`, and what led to it.

        ratio = exp(log_prob − behaviour_log_prob)
        loss  = −min(ratio · A, min(max(ratio, 1 − clip), 1 + clip) · A)

    Alignment: all three belong to one action in one state; behaviour_log_prob is what
    it had when it was taken. Gradients reach log_prob only, and none where the clipped
    term is the smaller one. log ratios are cut to ±20, without gradient beyond, so that
    no loss is infinite. Schulman et al. 2017, "Proximal policy optimization
    algorithms", equation 7. The mean of `approximate_kl` estimates
    KL(behaviour ‖ π) without bias and with less noise than −log ratio.

    float32 `[B]` each, B may be unknown; `clip` is a number or a scalar tensor. Raises
    ValueError for other ranks and for a number that is not above 0.
    """
    check_ranks(
        1,
        log_prob=log_prob,
        behaviour_log_prob=behaviour_log_prob,
        advantages=advantages,
    )
    _check_clip(clip)
    behaviour_log_prob = tf.stop_gradient(behaviour_log_prob)
    advantages = tf.stop_gradient(advantages)
    log_ratio = tf.clip_by_value(
        log_prob - behaviour_log_prob, -MAX_ABS_LOG_RATIO, MAX_ABS_LOG_RATIO
    )
    ratio = tf.exp(log_ratio)
    near = tf.clip_by_value(ratio, 1.0 - clip, 1.0 + clip)
    losses = -tf.minimum(ratio * advantages, near * advantages)
    extra = SurrogateExtra(
        ratio=tf.stop_gradient(ratio),
        clipped=tf.cast(tf.abs(ratio - 1.0) > clip, tf.float32),
        approximate_kl=tf.stop_gradient(tf.math.expm1(log_ratio) - log_ratio),
    )
    return losses, extra


def clipped_value_loss(
    value: tf.Tensor,
    old_value: tf.Tensor,
    target: tf.Tensor,
    clip: float | tf.Tensor | None = None,
) -> tf.Tensor:
    """The loss of each state's value, float32 `[B]`.

        loss = max((value − target)², (near − target)²) / 2
        near = old_value + min(max(value − old_value, −clip), clip)

    row by row; without `clip` it is (value − target)² / 2. `old_value` is what the
    network said when the target was made. Gradients reach `value` only, and none where
    the clipped term is the larger one. Not in the paper of PPO but in its authors'
    program (openai/baselines).

    float32 `[B]` each, B may be unknown; `clip`, in units of value, is a number or a
    scalar tensor. Raises ValueError for other ranks and for a number that is not
    above 0.
    """
    check_ranks(1, value=value, old_value=old_value, target=target)
    target = tf.stop_gradient(target)
    losses = 0.5 * tf.square(value - target)
    if clip is None:
        return losses
    _check_clip(clip)
    old_value = tf.stop_gradient(old_value)
    near = old_value + tf.clip_by_value(value - old_value, -clip, clip)
    return tf.maximum(losses, 0.5 * tf.square(near - target))


def _check_clip(clip: float | tf.Tensor) -> None:
    if isinstance(clip, int | float) and not clip > 0:
        raise ValueError(f"clip must be above 0, got {clip}")
