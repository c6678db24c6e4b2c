"""Shares of pairs: joined in the order of actors, moments those of the whole."""

import numpy as np
import pytest

from distrl.core.nests import concatenate
from distrl.core.returns_of_pairs import (
    joined_pairs,
    moments_of,
    pair_shares_spec,
    share_of_pairs,
)
from distrl.core.running_moments import RunningMoments
from distrl.core.specs import ArraySpec, leaves, validate

LEAVES = [ArraySpec((3,), "float32"), ArraySpec((), "float64")]


def share(actor, pairs, rows):
    rng = np.random.default_rng(actor)
    moments = [RunningMoments(leaf.shape) for leaf in LEAVES]
    for own, seen in zip(moments, rows, strict=True):
        own.update(seen)
    return share_of_pairs(
        actor,
        rng.integers(0, 1000, pairs),
        rng.normal(size=(pairs, 2)),
        rng.integers(1, 9, (pairs, 2)),
        moments,
        0.5 + actor,
    )


@pytest.fixture
def seen():
    """Rows of three actors; the second has seen none."""
    rng = np.random.default_rng(0)
    sizes = (5, 0, 11)
    return [(rng.normal(300, 9, (n, 3)), rng.normal(-4, 2, n)) for n in sizes]


@pytest.fixture
def shares(seen):
    return [share(a, 2 + a, rows) for a, rows in enumerate(seen)]


def test_a_share_fits_its_spec(shares):
    validate(pair_shares_spec(LEAVES), shares[2], 1, "share")
    assert shares[2].blocks.tolist() == [[2, 4, shares[2].length.sum()]]
    validate(pair_shares_spec([]), share_without_moments(), 1, "share")


def share_without_moments():
    two = np.zeros((1, 2))
    return share_of_pairs(0, np.zeros(1, np.int64), two, two.astype(np.int64), [], 0.1)


def test_shares_are_joined_by_actor_through_however_many_memories(shares):
    whole = joined_pairs([concatenate(shares)])
    parts = joined_pairs([concatenate([shares[2], shares[0]]), shares[1]])
    for a, b, *own in zip(leaves(whole), leaves(parts), *map(leaves, shares)):  # noqa: B905
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, np.concatenate(own))
    assert whole.blocks[:, 0].tolist() == [0, 1, 2]


def test_merged_moments_are_those_of_all_rows(shares, seen):
    merged = moments_of(joined_pairs(shares[::-1]))
    for index, own in enumerate(merged):
        rows = np.concatenate([part[index] for part in seen])
        assert own.count == len(rows) == 16
        np.testing.assert_allclose(own.mean, rows.mean(0), rtol=1e-12)
        np.testing.assert_allclose(own.variance, rows.var(0), rtol=1e-10)


def test_without_a_normaliser_there_are_no_moments():
    assert moments_of(share_without_moments()) == []
