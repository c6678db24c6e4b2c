"""Losses of deterministic policies for real-valued actions, and their targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from distrl.losses.ranks import check_ranks


class CriticExtra(NamedTuple):
    """What else the critic's loss knows."""

    td_error: tf.Tensor  # [B], target − q_tm1
    target: tf.Tensor  # [B], without gradient


def deterministic_critic(
    q_tm1: tf.Tensor, r_t: tf.Tensor, discount_t: tf.Tensor, q_t: tf.Tensor
) -> tuple[tf.Tensor, CriticExtra]:
    """The squared error of each transition, float32 `[B]`, and what led to it.

        target = r_t + discount_t · q_t
        loss   = (target − q_tm1)² / 2

    Alignment: q_tm1 is the critic's value of the action that was taken at s_tm1, which
    led, possibly n steps later, to r_t, discount_t and s_t (both fold the steps
    between: discount_t is γⁿ, 0 where the episode terminated). q_t is the target
    critic's value of the target policy's action at s_t. Gradients reach q_tm1 only.
    Lillicrap et al. 2016, "Continuous control with deep reinforcement learning";
    n steps as in Horgan et al. 2018, "Distributed prioritized experience replay".

    float32 `[B]` each, B may be unknown. Raises ValueError for other ranks.
    """
    check_ranks(1, q_tm1=q_tm1, r_t=r_t, discount_t=discount_t, q_t=q_t)
    target = tf.stop_gradient(r_t + discount_t * q_t)
    td_error = target - q_tm1
    return 0.5 * tf.square(td_error), CriticExtra(td_error, target)


def deterministic_policy_gradient(
    q: tf.Tensor, action: tf.Tensor, max_action_gradient_norm: float | None = None
) -> tf.Tensor:
    """−Q(s, π(s)) of each state, float32 `[B]`, with gradients for the policy only.

        loss = −q,   ∂loss/∂action = −∂q/∂action,   nothing else

    `action` is π(s), `q` the critic's value of it, computed from this very tensor. The
    critic's own parameters get no gradient, also when they are among the variables that
    the loss is differentiated by. `max_action_gradient_norm` limits ∂q/∂action, row by
    row. Silver et al. 2014, "Deterministic policy gradient algorithms".

    q: float32 `[B]`; action: float32 `[B, D]`; B may be unknown. Raises ValueError for
    other ranks, for a q that does not depend on `action`, and for a limit that is not
    above 0.
    """
    check_ranks(1, q=q)
    check_ranks(2, action=action)
    (slope,) = tf.gradients(q, action)
    if slope is None:
        raise ValueError(f"{q.name} does not depend on {action.name}")
    if max_action_gradient_norm is not None:
        if not max_action_gradient_norm > 0:
            raise ValueError(
                "max_action_gradient_norm must be above 0, "
                f"got {max_action_gradient_norm}"
            )
        slope = tf.clip_by_norm(slope, max_action_gradient_norm, axes=[1])
    # The second term is 0 and has the slope as its gradient.
    moved = action - tf.stop_gradient(action)
    push = tf.reduce_sum(tf.stop_gradient(slope) * moved, axis=1)
    return -tf.stop_gradient(q) - push


def polyak_update(
    targets: Sequence[tf.Variable], sources: Sequence[tf.Variable], polyak: float
) -> tf.Operation:
    """The operation that moves target variables towards their sources.

        target := polyak · target + (1 − polyak) · source

    So `polyak` is what is kept, 0.999 in Lillicrap et al. 2016 (their τ is 1 − polyak);
    0 copies. It reads the sources when it runs: order it behind a training step with
    control dependencies where that matters. Raises ValueError unless both are as many,
    shape by shape, and polyak is in [0, 1).
    """
    if not 0 <= polyak < 1:
        raise ValueError(f"polyak must be in [0, 1), got {polyak}")
    shapes = [[v.shape.as_list() for v in each] for each in (targets, sources)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"targets of shapes {shapes[0]}, sources of {shapes[1]}")
    pairs = zip(targets, sources, strict=True)
    if polyak == 0:
        return tf.group(*(target.assign(source) for target, source in pairs))
    return tf.group(
        *(
            target.assign_sub((1 - polyak) * (target - source))
            for target, source in pairs
        )
    )
