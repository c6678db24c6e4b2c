"""What crosses the borders between jobs.

Axes: T time, B batch, N streams (environment slots), R rows (transitions), F frames,
K blocks. Every leaf of a record has its rows on the first axis, so that records of one
kind can be joined leaf by leaf.

Time and streams. An actor steps its environments together, so row t of stream e is
what slot e saw at the actor's step t. The layout is Gymnasium's NEXT_STEP: the last
observation of an episode is a row of its own whose action is ignored, and the next row
is the first observation of the following episode.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec, EnvironmentSpec, Nest


class Experience(NamedTuple):
    """What an actor ships: frames, each once, and the transitions between them.

    A transition names its observations by time, so they may lie in a block that was
    shipped earlier. The observation at `time` is the stack of the frames at
    `max(time - k, episode_start)` for k = num_stacked - 1 … 0.
    """

    blocks: Any  # int64 [K, 4]: first time, times T, streams N, rows R of the block
    frames: Nest  # [F, *frame_shape], F = sum of T·N, time-major within a block
    stream: Any  # int32 [R]
    episode_start: Any  # int64 [R], time of the episode's first frame
    time_tm1: Any  # int64 [R], when the action was taken
    time_t: Any  # int64 [R], the observation to bootstrap from
    action: Nest  # [R, ...]
    reward: Any  # float32 [R], discounted n-step sum
    discount: Any  # float32 [R], discount^m · (1 − terminated)
    priority: Any  # float32 [R], |TD error| under the acting parameters, > 0


class Transition(NamedTuple):
    """n-step transitions; `r_t` and `discount_t` fold the steps between."""

    s_tm1: Nest  # [B, ...]
    a_tm1: Nest  # [B, ...]
    r_t: Any  # float32 [B]
    discount_t: Any  # float32 [B], 0 where the episode terminated
    s_t: Nest  # [B, ...]


class ReplayBatch(NamedTuple):
    """What a memory serves: transitions, how they were drawn, what they are called."""

    transition: Transition
    weight: Any  # float32 [B], importance weights, largest 1 in each batch
    id: Any  # int64 [B], never used twice by one incarnation of a memory


class PriorityUpdate(NamedTuple):
    """What a learner sends back about the rows of one incarnation of a memory."""

    id: Any  # int64 [B]
    priority: Any  # float32 [B], > 0
    incarnation: Any  # int64 [B], the memory's


def frame_spec(observation: Nest) -> Nest:
    """What is new of an observation at each step."""
    return map_nest(lambda leaf: ArraySpec(leaf.frame_shape, leaf.dtype), observation)


def experience_spec(spec: EnvironmentSpec) -> Experience:
    """Dtypes and trailing shapes of Experience."""
    scalar = ArraySpec((), "float32")
    time = ArraySpec((), "int64")
    return Experience(
        blocks=ArraySpec((4,), "int64"),
        frames=frame_spec(spec.observation),
        stream=ArraySpec((), "int32"),
        episode_start=time,
        time_tm1=time,
        time_t=time,
        action=spec.action,
        reward=scalar,
        discount=scalar,
        priority=scalar,
    )


def replay_batch_spec(spec: EnvironmentSpec) -> ReplayBatch:
    """Dtypes and trailing shapes of ReplayBatch."""
    scalar = ArraySpec((), "float32")
    return ReplayBatch(
        Transition(spec.observation, spec.action, scalar, scalar, spec.observation),
        weight=scalar,
        id=ArraySpec((), "int64"),
    )


def priority_update_spec() -> PriorityUpdate:
    """Dtypes and trailing shapes of PriorityUpdate."""
    number = ArraySpec((), "int64")
    return PriorityUpdate(number, ArraySpec((), "float32"), number)


def newest_frames(observation_spec: Nest, observation: Nest) -> Nest:
    """The last frame of each stacked leaf, `[N, ...]` in and out."""
    return map_nest(
        lambda leaf, array: array[:, -1] if leaf.num_stacked > 1 else np.asarray(array),
        observation_spec,
        observation,
    )


class RolloutRows(NamedTuple):
    """What N streams did in T steps under one set of parameters, time-major.

    Row t is an observation and what the step from it returned; row T is the observation
    behind the last step, only there to be worth something. The row of the last
    observation of an episode counts for nothing else either (`losses.returns.step_mask`
    says which rows those are).
    """

    observation: Nest  # [T + 1, N, ...]
    raw_action: Nest  # [T, N, ...], as the policy's distribution has it
    behaviour_log_prob: Any  # float32 [T, N]
    value: Any  # float32 [T + 1, N], under the acting parameters
    reward: Any  # float32 [T, N]
    terminated: Any  # bool [T, N]
    truncated: Any  # bool [T, N]
    # [T / L, N, ...], of a recurrent core before every L-th step; () without one.
    core_state: Nest
    first_is_last: Any  # bool [N], row 0 is the last observation of an episode
    stream: Any  # int64 [N], names the stream over rounds; a restarted one is another


def rollout_rows_spec(
    spec: EnvironmentSpec, raw_action: Nest, core_state: Nest = ()
) -> RolloutRows:
    """Dtypes and trailing shapes of RolloutRows, behind their axes T and N.

    `raw_action` and `core_state` are the specs of a raw action and of the state of a
    stream. The last two have no axis T.
    """
    scalar, flag = ArraySpec((), "float32"), ArraySpec((), "bool")
    return RolloutRows(
        observation=spec.observation,
        raw_action=raw_action,
        behaviour_log_prob=scalar,
        value=scalar,
        reward=scalar,
        terminated=flag,
        truncated=flag,
        core_state=core_state,
        first_is_last=flag,
        stream=ArraySpec((), "int64"),
    )
