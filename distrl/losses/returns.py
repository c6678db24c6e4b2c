"""Advantages and value targets of unrolls, time-major and in NumPy.

Rows follow the NEXT_STEP layout (`core.records`): what the step of row t returned lies
in row t, the observation that it led to in row t + 1. So the value in the row below is
always what to bootstrap from: that of the true last observation where an episode was
truncated, and of the observation behind the unroll where the unroll ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Advantages(NamedTuple):
    """What generalised advantage estimation gives, float32 `[T, B]`, 0 where masked."""

    advantages: np.ndarray
    value_targets: np.ndarray  # advantages + values: TD(λ) returns


def step_mask(
    terminated: np.ndarray, truncated: np.ndarray, first_is_last: np.ndarray
) -> np.ndarray:
    """Which rows hold a step of an episode, bool `[T, B]`; the others are to be masked.

        mask[0] = ¬first_is_last
        mask[t + 1] = ¬(mask[t] ∧ (terminated[t] ∨ truncated[t]))

    The row behind the end of an episode holds its last observation, and nothing that
    its step returned counts. `terminated` and `truncated` are bool `[T, B]`;
    `first_is_last` bool `[B]` says whether row 0 is such a row, left by the unroll
    before. Raises ValueError for other shapes.
    """
    ends = np.asarray(terminated, bool) | np.asarray(truncated, bool)
    _check(ends.shape, first_is_last=first_is_last, drop=1)
    mask = np.empty_like(ends)
    row = ~np.asarray(first_is_last, bool)
    for t in range(len(ends)):
        mask[t] = row
        row = ~(row & ends[t])
    return mask


def generalized_advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    mask: np.ndarray,
    discount: float,
    lambda_: float,
) -> Advantages:
    """GAE(λ) and the TD(λ) returns that belong to it.

        δ_t = r_t + γ (1 − terminated_t) V_{t+1} − V_t
        A_t = δ_t + γ λ (1 − terminated_t ∨ truncated_t) A_{t+1},   A_T = 0
        value target_t = A_t + V_t

    Alignment: the action of row t, taken on the observation that is worth V_t, led to
    r_t, to the flags in row t, and to the observation worth V_{t+1}. λ = 1 gives
    n-step returns to the end of episode or unroll, λ = 0 one-step ones. Rows without
    `mask` get 0, and nothing in them but V_t (what a truncation before them is
    bootstrapped from) reaches any other row; what terminated needs no V_{t+1}, which
    may be NaN. Schulman et al. 2016, "High-dimensional continuous control using
    generalized advantage estimation".

    `rewards` float `[T, B]`; `values` float `[T + 1, B]`, one row more, that of the
    observation behind the unroll; `terminated`, `truncated`, `mask` bool `[T, B]`
    (`step_mask`). Works in float64. Raises ValueError for other shapes, and for a
    discount or λ outside [0, 1].
    """
    _check_share(discount=discount, lambda_=lambda_)
    shape = np.shape(rewards)
    _check(shape, terminated=terminated, truncated=truncated, mask=mask)
    _check(shape, values=values, add=1)
    values = np.asarray(values, np.float64)
    terminated, mask = np.asarray(terminated, bool), np.asarray(mask, bool)
    bootstrap = np.where(terminated, 0.0, values[1:])
    deltas = np.where(mask, rewards + discount * bootstrap - values[:-1], 0.0)
    goes_on = mask & ~terminated & ~np.asarray(truncated, bool)
    advantages = _discounted_sums(deltas, discount * lambda_ * goes_on)
    targets = np.where(mask, advantages + values[:-1], 0.0)
    return Advantages(advantages.astype(np.float32), targets.astype(np.float32))


def normalised_advantages(
    advantages: np.ndarray, mask: np.ndarray, epsilon: float = 1e-8
) -> np.ndarray:
    """Advantages with mean 0 and standard deviation 1, float32, 0 where masked.

        (A − mean) / (std + ε), over the rows of the mask

    Any shape, the same for both; raises ValueError otherwise. One row, or none, has no
    spread and gives 0.
    """
    _check(np.shape(advantages), mask=mask)
    mask = np.asarray(mask, bool)
    rows = np.asarray(advantages, np.float64)[mask]
    result = np.zeros(mask.shape, np.float32)
    if rows.size:
        result[mask] = (rows - rows.mean()) / (rows.std() + epsilon)
    return result


def _discounted_sums(terms: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """y_t = terms_t + factors_t · y_{t+1}, with 0 behind the last row; `[T, B]`."""
    sums = np.empty_like(terms)
    later = np.zeros(terms.shape[1:])
    for t in reversed(range(len(terms))):
        later = terms[t] + factors[t] * later
        sums[t] = later
    return sums


def _check(
    shape: tuple[int, ...], add: int = 0, drop: int = 0, **arrays: np.ndarray
) -> None:
    """Raises ValueError unless each array has this shape, `add` rows more, `drop` axes
    less."""
    if add or drop:
        if len(shape) != 2:
            raise ValueError(f"expected [T, B], got {list(shape)}")
        shape = (shape[0] + add, *shape[1:])[drop:]
    for name, array in arrays.items():
        if np.shape(array) != shape:
            raise ValueError(
                f"{name}: expected {list(shape)}, got {list(np.shape(array))}"
            )


def _check_share(**numbers: float) -> None:
    for name, number in numbers.items():
        if not 0 <= number <= 1:
            raise ValueError(f"{name} must be in [0, 1], got {number}")
