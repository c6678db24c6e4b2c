"""Rollouts of a synchronous policy-gradient agent, as they travel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distrl.core.nests import map_nest
from distrl.core.records import RolloutRows, rollout_rows_spec
from distrl.core.specs import ArraySpec, EnvironmentSpec, Nest, leaves


class Shares(NamedTuple):
    """Rollouts of K actors one behind the other, their axes T and N flattened."""

    blocks: Any  # int64 [K, 5]: actor, T, N, unrolls T / L, rows without reset rows
    collect_secs: Any  # float64 [K], what collecting took
    # Leaves [sum of T·N, ...], [sum of (T+1)·N, ...], [sum of T/L·N, ...], [sum of N].
    rollouts: RolloutRows


def shares_spec(
    spec: EnvironmentSpec, raw_action: Nest, core_state: Nest = ()
) -> Shares:
    """Dtypes and trailing shapes of Shares; `raw_action` is what the policy draws,
    `core_state` what it remembers of a stream."""
    rows = rollout_rows_spec(spec, raw_action, core_state)
    return Shares(ArraySpec((5,), "int64"), ArraySpec((), "float64"), rows)


def share_of(actor: int, rollout: RolloutRows, rows: int, secs: float) -> Shares:
    """One actor's rollout, ready to travel; views where that is possible."""
    steps, streams = rollout.reward.shape
    unrolls = next((len(leaf) for leaf in leaves(rollout.core_state)), 0)
    timed: tuple = map_nest(_flat, tuple(rollout[:-2]))
    return Shares(
        np.array([[actor, steps, streams, unrolls, rows]], np.int64),
        np.array([secs]),
        RolloutRows._make([*timed, *rollout[-2:]]),
    )


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, *array.shape[2:])


def joined_rollouts(shares: list[Shares]) -> RolloutRows:
    """All rollouts side by side, `[T, sum of N, ...]`, in the order of their actors.

    Raises ValueError when they differ in the number of steps.
    """
    found = [pair for part in shares for pair in _rollouts(part)]
    found.sort(key=lambda pair: pair[0])
    steps = {rollout.reward.shape[0] for _, rollout in found}
    if len(steps) != 1:
        raise ValueError(f"expected shares of equally many steps, got {sorted(steps)}")
    rollouts = [rollout for _, rollout in found]
    timed = map_nest(
        lambda *parts: np.concatenate(parts, axis=1),
        *(tuple(rollout[:-2]) for rollout in rollouts),
    )
    rest = [np.concatenate(parts) for parts in zip(*(r[-2:] for r in rollouts))]  # noqa: B905
    return RolloutRows._make([*timed, *rest])


def _rollouts(shares: Shares) -> list[tuple[int, RolloutRows]]:
    """The rollouts with the indices of their actors, as views."""
    found = []
    at = after = begun = first = 0  # rows of T, of T + 1, of unrolls; streams
    for actor, steps, streams, unrolls, _ in shares.blocks.tolist():

        def timed(nest: Nest, start: int, length: int, n: int = streams) -> Nest:
            def part(array: np.ndarray) -> np.ndarray:
                rows = array[start : start + length * n]
                return rows.reshape(length, n, *array.shape[1:])

            return map_nest(part, nest)

        rows, slots = shares.rollouts, slice(first, first + streams)
        rollout = RolloutRows(
            timed(rows.observation, after, steps + 1),
            timed(rows.raw_action, at, steps),
            timed(rows.behaviour_log_prob, at, steps),
            timed(rows.value, after, steps + 1),
            timed(rows.reward, at, steps),
            timed(rows.terminated, at, steps),
            timed(rows.truncated, at, steps),
            timed(rows.core_state, begun, unrolls),
            rows.first_is_last[slots],
            rows.stream[slots],
        )
        found.append((actor, rollout))
        at, after = at + steps * streams, after + (steps + 1) * streams
        begun, first = begun + unrolls * streams, first + streams
    return found
