"""What IMPALA trains on: unrolls, time-major."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from distrl.core.nests import map_nest
from distrl.core.specs import Nest
from distrl.core.trajectories import Trajectories


class ImpalaBatch(NamedTuple):
    """Unrolls of T steps of B streams, time-major; rows as `Trajectories` has them."""

    observation: Nest  # [T + 1, B, ...]
    raw_action: Nest  # [T, B, ...]
    behaviour: Any  # float32 [T, B, P]
    reward: Any  # float32 [T, B]
    terminated: Any  # bool [T, B]
    truncated: Any  # bool [T, B]
    first_is_last: Any  # bool [B]
    core_state: Nest = ()  # [B, ...], before row 0; of a recurrent core


def time_major(trajectories: Trajectories) -> ImpalaBatch:
    """The batch of unrolls `[U, T, ...]` of tensors."""

    def swapped(nest: Nest) -> Nest:
        return map_nest(
            lambda x: tf.transpose(x, [1, 0, *range(2, len(x.shape))]), nest
        )

    return ImpalaBatch(
        observation=swapped(trajectories.observation),
        raw_action=swapped(trajectories.raw_action),
        behaviour=swapped(trajectories.behaviour),
        reward=swapped(trajectories.reward),
        terminated=swapped(trajectories.terminated),
        truncated=swapped(trajectories.truncated),
        first_is_last=trajectories.first_is_last,
        core_state=trajectories.core_state,
    )


def step_masks(batch: ImpalaBatch) -> tf.Tensor:
    """Which rows hold a step of an episode, bool `[T, B]`: `losses.returns.step_mask`
    as a graph. Raises ValueError where T is not static."""
    ends = tf.logical_or(batch.terminated, batch.truncated)
    if ends.shape.rank != 2 or ends.shape[0] is None:
        raise ValueError(f"expected [T, B] with a static T, got {ends.shape}")
    mask = [tf.logical_not(batch.first_is_last)]
    for end in tf.unstack(ends)[:-1]:
        mask.append(tf.logical_not(tf.logical_and(mask[-1], end)))
    return tf.stack(mask)


def joined(nest: Nest) -> Nest:
    """[T · B, ...] of [T, B, ...]."""
    return map_nest(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), nest)
