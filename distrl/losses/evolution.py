"""Evolution strategies in NumPy: noise, rank shaping, the gradient's estimate.

Salimans et al. 2017, "Evolution strategies as a scalable alternative to reinforcement
learning". A perturbation is named by an offset into a table that every task makes for
itself from one seed, or by a seed of its own; so only names and returns travel. What a
name stands for is the same in all tasks as long as their NumPy versions agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def noise_table(seed: int, size: int) -> np.ndarray:
    """Standard normal numbers, float32 `[size]`, not to be written to.

    The same in every task for one seed; 4 bytes a number. Raises ValueError for a
    negative seed or a size below 1.
    """
    if size < 1:
        raise ValueError(f"a noise table needs a size of at least 1, got {size}")
    table = _normal(seed, size)
    table.flags.writeable = False
    return table


def noise_rows(table: np.ndarray, offsets: Sequence[int], size: int) -> np.ndarray:
    """The perturbations at these offsets, float32 `[len(offsets), size]`, copied.

    Row i is `table[offsets[i] : offsets[i] + size]`. Offsets are drawn from
    [0, len(table) − size]; raises ValueError, naming the first, for others.
    """
    starts = np.asarray(offsets, np.int64)
    wrong = starts[(starts < 0) | (starts > len(table) - size)]
    if size < 1 or wrong.size:
        raise ValueError(
            f"no {size} numbers at offset {wrong[:1].tolist()} of a table of "
            f"{len(table)}"
        )
    return np.lib.stride_tricks.sliding_window_view(table, size)[starts]


def seeded_noise_rows(seeds: Iterable[int], size: int) -> np.ndarray:
    """The perturbations with these seeds, float32 `[number of seeds, size]`.

    Without a table: nothing to hold, but each number costs about 5 ns. Raises
    ValueError for a negative seed.
    """
    rows = [_normal(seed, size) for seed in seeds]
    return np.stack(rows) if rows else np.zeros((0, size), np.float32)


def centred_ranks(returns: np.ndarray) -> np.ndarray:
    """Ranks of returns as float32 in [−1/2, 1/2], of the same shape, with sum 0.

        (rank − 1) / (n − 1) − 1/2, over all n of them

    Equals share the mean of their ranks: where all are equal, so that nothing can be
    learnt, all are 0 (and not whatever sorting made of them). Raises ValueError for
    NaN.
    """
    returns = np.asarray(returns, np.float64)
    if np.isnan(returns).any():
        raise ValueError(f"returns hold NaN, the first at {_first_nan(returns)}")
    if returns.size < 2:
        return np.zeros(returns.shape, np.float32)
    ordered = np.sort(returns, axis=None)
    below = np.searchsorted(ordered, returns, side="left")
    not_above = np.searchsorted(ordered, returns, side="right")
    ranks = (below + not_above - 1) / 2  # from 0
    return (ranks / (returns.size - 1) - 0.5).astype(np.float32)


def antithetic_gradient(
    noise: np.ndarray | Iterable[np.ndarray], returns: np.ndarray, sigma: float
) -> np.ndarray:
    """The estimate of the gradient of E[F(θ + σε)] towards θ, float32 `[P]`: ascend it.

        g = Σ over i of (F(θ + σ ε_i) − F(θ − σ ε_i)) ε_i / (2 n σ)

    `noise` holds the ε_i, float32 `[n, P]`, or blocks of it one after the other, so
    that not all need be held at once. `returns` is float `[n, 2]`, (+, −) of each pair,
    as they are or shaped (`centred_ranks` over all 2n). Raises ValueError for other
    shapes, no pair, another number of rows of noise, and a sigma that is not above 0.
    """
    returns = np.asarray(returns, np.float64)
    if returns.ndim != 2 or returns.shape[1] != 2 or not len(returns):
        raise ValueError(f"expected returns [n, 2], n > 0, got {list(returns.shape)}")
    if not sigma > 0:
        raise ValueError(f"sigma must be above 0, got {sigma}")
    weights = (returns[:, 0] - returns[:, 1]) / (2 * sigma * len(returns))
    weights = weights.astype(np.float32)
    gradient, used = np.zeros(1, np.float32), 0
    for block in [noise] if isinstance(noise, np.ndarray) else noise:
        own = weights[used : used + len(block)]
        if len(own) < len(block):
            raise ValueError(f"more rows of noise than {len(returns)} pairs of returns")
        gradient = gradient + own @ block
        used += len(block)
    if used < len(returns):
        raise ValueError(f"{used} rows of noise for {len(returns)} pairs of returns")
    return gradient


def _normal(seed: int, size: int) -> np.ndarray:
    # PCG64 by name: default_rng may become another generator one day.
    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.standard_normal(size, np.float32)


def _first_nan(returns: np.ndarray) -> list[int]:
    return np.argwhere(np.isnan(returns))[0].tolist()
