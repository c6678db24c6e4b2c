"""Unrolls of an off-policy actor-critic, as they travel."""

from __future__ import annotations

from typing import Any, NamedTuple

from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec, EnvironmentSpec, Nest


class Trajectories(NamedTuple):
    """U unrolls of T steps, each of one stream; one after the other in the channel.

    Row t is an observation and what the step from it returned, in the NEXT_STEP layout
    (`core.records`); row T is the observation behind the last step, and is row 0 of the
    stream's next unroll: unrolls overlap by that one. The step from the last
    observation of an episode counts for nothing (`losses.returns.step_mask`).
    """

    observation: Nest  # [U, T + 1, ...]
    raw_action: Nest  # [U, T, ...], as the policy's distribution has it
    behaviour: Any  # float32 [U, T, P], parameters of the distribution acted by
    reward: Any  # float32 [U, T]
    terminated: Any  # bool [U, T]
    truncated: Any  # bool [U, T]
    first_is_last: Any  # bool [U], row 0 is the last observation of an episode
    core_state: Nest  # [U, ...], of a recurrent core before row 0; () without one
    version: Any  # int64 [U, T], of the parameters acted by


def trajectories_spec(
    spec: EnvironmentSpec,
    raw_action: Nest,
    num_parameters: int,
    num_steps: int,
    core_state: Nest = (),
) -> Trajectories:
    """Dtypes and trailing shapes, behind the axis U.

    `raw_action` is the spec of what the policy draws, `num_parameters` P the size of
    its distribution's parameters, `core_state` the state of a stream.
    """

    def steps(nest: Nest, number: int) -> Nest:
        def repeated(leaf: ArraySpec) -> ArraySpec:
            low, high = (
                bound * number if isinstance(bound, tuple) else bound
                for bound in (leaf.minimum, leaf.maximum)
            )
            return ArraySpec((number, *leaf.shape), leaf.dtype, low, high)

        return map_nest(repeated, nest)

    flags = ArraySpec((num_steps,), "bool")
    return Trajectories(
        observation=steps(spec.observation, num_steps + 1),
        raw_action=steps(raw_action, num_steps),
        behaviour=ArraySpec((num_steps, num_parameters), "float32"),
        reward=ArraySpec((num_steps,), "float32"),
        terminated=flags,
        truncated=flags,
        first_is_last=ArraySpec((), "bool"),
        core_state=core_state,
        version=ArraySpec((num_steps,), "int64"),
    )
