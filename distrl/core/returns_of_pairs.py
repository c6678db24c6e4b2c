"""What actors of evolution strategies tell of their episodes, as it travels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from distrl.core.nests import concatenate
from distrl.core.running_moments import RunningMoments
from distrl.core.specs import ArraySpec


class PairShares(NamedTuple):
    """Pairs of K actors one behind the other; their vectors stay at home."""

    blocks: Any  # int64 [K, 3]: actor, pairs, env steps
    collect_secs: Any  # float64 [K], what collecting took
    name: Any  # int64 [pairs], of the perturbation
    returns: Any  # float64 [pairs, 2], undiscounted, of +, −
    length: Any  # int64 [pairs, 2], env steps
    mean: tuple  # float64 [K, *shape] a normalised leaf, of the observations acted on
    variance: tuple  # likewise
    num_seen: tuple  # int64 [K] a leaf


def pair_shares_spec(normalised: Sequence[ArraySpec]) -> PairShares:
    """Dtypes and trailing shapes of PairShares; `normalised` are those leaves."""
    moments = tuple(ArraySpec(leaf.shape, "float64") for leaf in normalised)
    number = ArraySpec((), "int64")
    return PairShares(
        ArraySpec((3,), "int64"),
        ArraySpec((), "float64"),
        number,
        ArraySpec((2,), "float64"),
        ArraySpec((2,), "int64"),
        moments,
        moments,
        tuple(number for _ in normalised),
    )


def share_of_pairs(
    actor: int,
    name: np.ndarray,
    returns: np.ndarray,
    length: np.ndarray,
    moments: Sequence[RunningMoments],
    secs: float,
) -> PairShares:
    """One actor's share, ready to travel."""
    return PairShares(
        np.array([[actor, len(name), length.sum()]], np.int64),
        np.array([secs]),
        name,
        returns,
        length,
        tuple(own.mean[None] for own in moments),
        tuple(own.variance[None] for own in moments),
        tuple(np.array([own.count], np.int64) for own in moments),
    )


def joined_pairs(shares: Sequence[PairShares]) -> PairShares:
    """All pairs in the order of their actors, whichever memories they came through."""
    single = [own for part in shares for own in _by_actor(part)]
    single.sort(key=lambda own: int(own.blocks[0, 0]))
    return concatenate(single)


def _by_actor(shares: PairShares) -> list[PairShares]:
    """One a block, as views."""
    found, at = [], 0
    for k, (_, pairs, _) in enumerate(shares.blocks.tolist()):
        own, rows = slice(k, k + 1), slice(at, at + pairs)
        found.append(
            PairShares(
                shares.blocks[own],
                shares.collect_secs[own],
                shares.name[rows],
                shares.returns[rows],
                shares.length[rows],
                *[tuple(leaf[own] for leaf in leaves) for leaves in shares[5:]],
            )
        )
        at += pairs
    return found


def moments_of(shares: PairShares) -> list[RunningMoments]:
    """Those of all actors together, one a normalised leaf, in the order of actors."""
    merged = []
    for mean, variance, count in zip(*shares[5:], strict=True):
        total = RunningMoments(mean.shape[1:])
        for k in range(len(count)):
            own = RunningMoments(mean.shape[1:])
            own.load({"mean": mean[k], "variance": variance[k], "count": count[k]})
            total.merge(own)
        merged.append(total)
    return merged
