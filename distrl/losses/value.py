"""Losses of value functions."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from distrl.losses.ranks import check_ranks


class DoubleQExtra(NamedTuple):
    """What else double Q-learning knows."""

    td_error: tf.Tensor  # [B], target − q(s_tm1, a_tm1)
    target: tf.Tensor  # [B], without gradient
    best_action: tf.Tensor  # int64 [B], the selector's at s_t


def huber(x: tf.Tensor, delta: float = 1.0) -> tf.Tensor:
    """x² / 2 up to |x| = `delta`, then linear with slope `delta`; any shape.

    Raises ValueError unless `delta` is above 0.
    """
    if delta <= 0:
        raise ValueError(f"delta must be above 0, got {delta}")
    size = tf.abs(x)
    near = tf.minimum(size, delta)
    return near * (size - 0.5 * near)


def double_q_learning(
    q_tm1: tf.Tensor,
    a_tm1: tf.Tensor,
    r_t: tf.Tensor,
    discount_t: tf.Tensor,
    q_t_value: tf.Tensor,
    q_t_selector: tf.Tensor,
    huber_delta: float = 1.0,
) -> tuple[tf.Tensor, DoubleQExtra]:
    """The Huber loss of each transition, float32 `[B]`, and what led to it.

        target = r_t + discount_t · q_t_value[argmax over a of q_t_selector[a]]
        loss   = huber(target − q_tm1[a_tm1])

    Alignment: a_tm1 was taken at s_tm1 and led, possibly n steps later, to r_t,
    discount_t and s_t. Both q_t_… are values at s_t: q_t_selector the online
    network's, q_t_value the target network's (the same for both is plain Q-learning).
    Gradients reach q_tm1 only. Van Hasselt, Guez and Silver 2016, "Deep reinforcement
    learning with double Q-learning".

    q_tm1, q_t_value, q_t_selector: float32 `[B, A]`. a_tm1: integer `[B]`, counted
    from 0. r_t, discount_t: float32 `[B]`, the latter 0 where the episode terminated.
    B may be unknown. Raises ValueError for other ranks.
    """
    check_ranks(2, q_tm1=q_tm1, q_t_value=q_t_value, q_t_selector=q_t_selector)
    check_ranks(1, a_tm1=a_tm1, r_t=r_t, discount_t=discount_t)
    best_action = tf.argmax(q_t_selector, axis=1)
    bootstrap_value = tf.gather(q_t_value, best_action, batch_dims=1)
    target = tf.stop_gradient(r_t + discount_t * bootstrap_value)
    td_error = target - tf.gather(q_tm1, a_tm1, batch_dims=1)
    return huber(td_error, huber_delta), DoubleQExtra(td_error, target, best_action)
