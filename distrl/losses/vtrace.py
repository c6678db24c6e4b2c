"""V-trace: off-policy corrected targets of values, and advantages of the policy.

Everything is time-major: `[T, B, *trailing]`, the trailing axes for several values a
step; an axis of size 1 is broadcast. Espeholt et al. 2018, "IMPALA: scalable
distributed deep-RL with importance weighted actor-learner architectures", section 4.1.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from distrl.losses.ranks import check_ranks


class VTrace(NamedTuple):
    """Float32 `[T, B, *trailing]` each, without gradient."""

    vs: tf.Tensor  # targets of the values
    pg_advantages: tf.Tensor  # weights of the policy gradient


class VTraceOfPolicies(NamedTuple):
    """The same, and what it was computed from."""

    vs: tf.Tensor
    pg_advantages: tf.Tensor
    log_rhos: tf.Tensor  # [T, B], target − behaviour
    behaviour_log_probs: tf.Tensor  # [T, B], of the actions
    target_log_probs: tf.Tensor  # [T, B], with gradient


def vtrace_from_importance_weights(
    log_rhos: tf.Tensor,
    discounts: tf.Tensor,
    rewards: tf.Tensor,
    values: tf.Tensor,
    bootstrap_value: tf.Tensor,
    rho_clip: float | None = 1.0,
    pg_rho_clip: float | None = 1.0,
    lambda_: float = 1.0,
    mask: tf.Tensor | None = None,
) -> VTrace:
    """Targets and advantages of T steps.

        ρ_t = exp(log_rhos_t),   c_t = λ min(1, ρ_t)
        δ_t = min(ρ_t, rho_clip) (r_t + discounts_t V_{t+1} − V_t)
        vs_t = V_t + δ_t + discounts_t c_t (vs_{t+1} − V_{t+1})
        advantage_t = min(ρ_t, pg_rho_clip) (r_t + discounts_t vs_{t+1} − V_t)

    with V_T = vs_T = bootstrap_value; a clip of None is none. Alignment: the action of
    row t, taken on the observation worth V_t, led to r_t, to discounts_t = γ · (1 −
    terminated) and to the observation worth V_{t+1}.

    `mask`, bool, serves the NEXT_STEP layout (`core.records`): it is False where a row
    is the last observation of an episode, whose step counts for nothing. There vs_t =
    V_t and the advantage is 0, and nothing but V_t reaches the rows before. So what was
    truncated is bootstrapped from the value of its own last observation.

    Shapes: bootstrap_value has no axis T, all others have one rank, and no sizes need
    be known. Where T is static the recursion is unrolled, T multiplications and
    additions; where it is not, it is a loop, which the local session does not run. No
    gradient flows through the results. Raises ValueError for other ranks, for a clip
    that is not above 0, and for a λ outside [0, 1].
    """
    _check(log_rhos, discounts, rewards, values, bootstrap_value, mask)
    _check_numbers(rho_clip, pg_rho_clip, lambda_)
    rhos = tf.exp(log_rhos)
    below = tf.expand_dims(bootstrap_value, 0)
    next_values = tf.concat([values[1:], below], axis=0)
    traces = discounts * (lambda_ * tf.minimum(rhos, 1.0))
    deltas = _clipped(rhos, rho_clip) * (rewards + discounts * next_values - values)
    if mask is not None:
        traces, deltas = _where(mask, traces), _where(mask, deltas)
    vs = values + _discounted_sums(deltas, traces, tf.zeros_like(bootstrap_value))
    next_vs = tf.concat([vs[1:], below], axis=0)
    advantages = rewards + discounts * next_vs - values
    advantages = _clipped(rhos, pg_rho_clip) * advantages
    if mask is not None:
        advantages = _where(mask, advantages)
    return VTrace(tf.stop_gradient(vs), tf.stop_gradient(advantages))


def vtrace_from_log_probs(
    behaviour_log_probs: tf.Tensor,
    target_log_probs: tf.Tensor,
    discounts: tf.Tensor,
    rewards: tf.Tensor,
    values: tf.Tensor,
    bootstrap_value: tf.Tensor,
    rho_clip: float | None = 1.0,
    pg_rho_clip: float | None = 1.0,
    lambda_: float = 1.0,
    mask: tf.Tensor | None = None,
) -> VTraceOfPolicies:
    """V-trace of actions with these log-probabilities, float32 `[T, B]` each, under the
    policy that acted and the one that learns; the rest and errors as above."""
    check_ranks(
        rewards.shape.rank,
        behaviour_log_probs=behaviour_log_probs,
        target_log_probs=target_log_probs,
    )
    log_rhos = tf.stop_gradient(target_log_probs - behaviour_log_probs)
    vtrace = vtrace_from_importance_weights(
        log_rhos,
        discounts,
        rewards,
        values,
        bootstrap_value,
        rho_clip,
        pg_rho_clip,
        lambda_,
        mask,
    )
    return VTraceOfPolicies(*vtrace, log_rhos, behaviour_log_probs, target_log_probs)


def vtrace_from_logits(
    behaviour_logits: tf.Tensor,
    target_logits: tf.Tensor,
    actions: tf.Tensor,
    discounts: tf.Tensor,
    rewards: tf.Tensor,
    values: tf.Tensor,
    bootstrap_value: tf.Tensor,
    rho_clip: float | None = 1.0,
    pg_rho_clip: float | None = 1.0,
    lambda_: float = 1.0,
    mask: tf.Tensor | None = None,
) -> VTraceOfPolicies:
    """V-trace of categorical policies: logits float32 `[T, B, A]`, actions integer
    `[T, B]`, counted from 0; the rest, all of rank 2, and errors as above."""
    return vtrace_from_log_probs(
        log_probs_of_actions(behaviour_logits, actions),
        log_probs_of_actions(target_logits, actions),
        discounts,
        rewards,
        values,
        bootstrap_value,
        rho_clip,
        pg_rho_clip,
        lambda_,
        mask,
    )


def log_probs_of_actions(logits: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
    """log softmax(logits)[action], float32 `[T, B]`.

    logits: float32 `[T, B, A]`. actions: integer `[T, B]`, counted from 0. Gradients
    reach the logits. Raises ValueError for other ranks.
    """
    check_ranks(3, logits=logits)
    check_ranks(2, actions=actions)
    # On two axes, where TensorFlow adds no check that is control flow.
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(actions, [-1]),
        logits=tf.reshape(logits, [-1, tf.shape(logits)[2]]),
    )
    return -tf.reshape(losses, tf.shape(actions))


def _discounted_sums(
    terms: tf.Tensor, factors: tf.Tensor, last: tf.Tensor
) -> tf.Tensor:
    """y_t = terms_t + factors_t · y_{t+1}, where y_T = last; `[T, ...]`."""
    num_steps = terms.shape[0]
    if num_steps is None:
        return tf.scan(
            lambda later, row: row[0] + row[1] * later,
            (terms, factors),
            initializer=last,
            reverse=True,
        )
    sums, later = [], last
    rows = zip(tf.unstack(terms), tf.unstack(factors, num_steps), strict=True)
    for term, factor in reversed(list(rows)):
        later = term + factor * later
        sums.append(later)
    return tf.stack(sums[::-1])


def _clipped(rhos: tf.Tensor, clip: float | None) -> tf.Tensor:
    return rhos if clip is None else tf.minimum(rhos, clip)


def _where(mask: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The rows, 0 outside the mask, even where they are not finite."""
    return tf.where_v2(mask, rows, tf.zeros_like(rows))


def _check(
    log_rhos: tf.Tensor,
    discounts: tf.Tensor,
    rewards: tf.Tensor,
    values: tf.Tensor,
    bootstrap_value: tf.Tensor,
    mask: tf.Tensor | None,
) -> None:
    rank = log_rhos.shape.rank
    if rank is None or rank < 2:
        raise ValueError(f"log_rhos must be [T, B, ...], got shape {log_rhos.shape}")
    check_ranks(rank, discounts=discounts, rewards=rewards, values=values)
    check_ranks(rank - 1, bootstrap_value=bootstrap_value)
    if mask is not None:
        check_ranks(rank, mask=mask)


def _check_numbers(
    rho_clip: float | None, pg_rho_clip: float | None, lambda_: float
) -> None:
    for name, clip in {"rho_clip": rho_clip, "pg_rho_clip": pg_rho_clip}.items():
        if clip is not None and not clip > 0:
            raise ValueError(f"{name} must be above 0, got {clip}")
    if not 0 <= lambda_ <= 1:
        raise ValueError(f"lambda_ must be in [0, 1], got {lambda_}")
