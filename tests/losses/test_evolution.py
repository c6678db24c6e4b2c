"""Evolution strategies: names of noise, ranks, and the estimate of a gradient."""

import numpy as np
import pytest
import scipy.stats

from distrl.losses.evolution import (
    antithetic_gradient,
    centred_ranks,
    noise_rows,
    noise_table,
    seeded_noise_rows,
)


def test_ranks_are_scipys_over_all_returns():
    returns = np.random.default_rng(0).integers(0, 7, (10, 2)).astype(np.float32)
    ranks = centred_ranks(returns)
    expected = (scipy.stats.rankdata(returns).reshape(10, 2) - 1) / 19 - 0.5
    assert ranks.dtype == np.float32
    np.testing.assert_allclose(ranks, expected, atol=1e-6)
    assert ranks.sum() == pytest.approx(0, abs=1e-5)


def test_ranks_go_from_minus_to_plus_a_half_whatever_the_scale():
    returns = np.array([-1e30, 3.0, np.inf, 2.0])
    np.testing.assert_allclose(centred_ranks(returns), [-0.5, 1 / 6, 0.5, -1 / 6])
    np.testing.assert_array_equal(
        centred_ranks(np.exp([1.0, 2.0, 3.0])), centred_ranks(np.array([1, 2, 3]))
    )


@pytest.mark.parametrize("returns", [np.full((4, 2), 500.0), np.ones(1), np.zeros(0)])
def test_equal_returns_teach_nothing(returns):
    np.testing.assert_array_equal(centred_ranks(returns), np.zeros(returns.shape))


def test_nan_has_no_rank():
    with pytest.raises(ValueError, match=r"\[1, 0\]"):
        centred_ranks(np.array([[0.0, 1.0], [np.nan, 2.0]]))


def test_a_table_is_the_seeds_and_read_only():
    table = noise_table(3, 1000)
    assert table.dtype == np.float32 and table.shape == (1000,)
    np.testing.assert_array_equal(table, noise_table(3, 1000))
    assert (table != noise_table(4, 1000)).any()
    assert scipy.stats.kstest(noise_table(0, 20_000), "norm").pvalue > 1e-3
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 0


def test_rows_are_cut_from_the_table():
    table = noise_table(0, 50)
    rows = noise_rows(table, [0, 7, 40, 7], 10)
    expected = np.stack([table[i : i + 10] for i in (0, 7, 40, 7)])
    np.testing.assert_array_equal(rows, expected)
    rows[:] = 0  # a copy
    assert (table != 0).all()
    assert noise_rows(table, [], 10).shape == (0, 10)
    assert noise_rows(table, [0], 50).shape == (1, 50)


@pytest.mark.parametrize(("offset", "size"), [(-1, 10), (41, 10), (0, 51), (0, 0)])
def test_an_offset_outside_the_table_is_named(offset, size):
    with pytest.raises(ValueError, match="offset"):
        noise_rows(noise_table(0, 50), [0, offset], size)


def test_noise_by_seed():
    rows = seeded_noise_rows([5, 6, 5], 300)
    assert rows.dtype == np.float32 and rows.shape == (3, 300)
    np.testing.assert_array_equal(rows[0], rows[2])
    assert abs(np.corrcoef(rows[:2])[0, 1]) < 0.2
    np.testing.assert_array_equal(seeded_noise_rows([6], 300)[0], rows[1])
    assert seeded_noise_rows([], 4).shape == (0, 4)


def quadratic(size=5, seed=0):
    """F, its gradient, and a point."""
    rng = np.random.default_rng(seed)
    root, best, theta = (
        rng.normal(size=(size, size)),
        rng.normal(size=size),
        rng.normal(size=size),
    )
    curvature = root @ root.T / size

    def function(x):
        return -0.5 * np.einsum("...i,ij,...j", x - best, curvature, x - best)

    return function, -curvature @ (theta - best), theta


def pairs(function, theta, noise, sigma):
    signs = np.array([1.0, -1.0])[:, None]
    return function(theta + sigma * signs * noise[:, None])  # [n, 2]


def test_the_estimate_is_the_sum_that_it_says():
    noise = noise_rows(noise_table(0, 100), [0, 30, 60], 7)
    returns = np.array([[1.0, 3.0], [2.0, -1.0], [0.5, 0.5]])
    expected = (-2 * noise[0] + 3 * noise[1]) / (2 * 3 * 0.1)
    got = antithetic_gradient(noise, returns, 0.1)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("sigma", [0.01, 0.5, 3.0])
def test_on_a_quadratic_orthogonal_noise_gives_the_gradient_itself(sigma):
    """Σ ε εᵀ / n is then the identity, and even terms cancel in pairs."""
    function, gradient, theta = quadratic()
    noise = np.sqrt(5) * np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    returns = pairs(function, theta, noise, sigma)
    got = antithetic_gradient(noise.astype(np.float32), returns, sigma)
    np.testing.assert_allclose(got, gradient, rtol=1e-4, atol=1e-5)
    step = 1e-5 * np.eye(5)
    differences = (function(theta + step) - function(theta - step)) / 2e-5
    np.testing.assert_allclose(got, differences, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [False, True])
def test_random_noise_points_along_the_true_direction(shape):
    function, gradient, theta = quadratic()
    noise = seeded_noise_rows(range(4000), 5)
    returns = pairs(function, theta, noise, 0.1)
    returns = centred_ranks(returns) if shape else returns
    got = antithetic_gradient(noise, returns, 0.1)
    cosine = got @ gradient / np.linalg.norm(got) / np.linalg.norm(gradient)
    assert cosine > 0.99
    if not shape:
        np.testing.assert_allclose(got, gradient, atol=0.15 * abs(gradient).max())


def test_noise_may_come_in_blocks():
    noise = seeded_noise_rows(range(10), 6)
    returns = np.random.default_rng(0).normal(size=(10, 2))
    whole = antithetic_gradient(noise, returns, 0.2)
    blocks = iter([noise[:4], noise[4:5], noise[5:]])
    np.testing.assert_allclose(
        antithetic_gradient(blocks, returns, 0.2), whole, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("rows", [3, 5])
@pytest.mark.parametrize("blocks", [False, True])
def test_another_number_of_rows_is_refused(rows, blocks):
    noise = np.zeros((rows, 2), np.float32)
    with pytest.raises(ValueError, match="4 pairs"):
        antithetic_gradient([noise] if blocks else noise, np.zeros((4, 2)), 0.1)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (0, 2)])
def test_returns_that_are_no_pairs_are_refused(shape):
    with pytest.raises(ValueError, match=r"returns \[n, 2\]"):
        antithetic_gradient(np.zeros((4, 2), np.float32), np.zeros(shape), 0.1)


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan")])
def test_sigma_is_above_zero(sigma):
    with pytest.raises(ValueError, match=f"sigma .*{sigma}"):
        antithetic_gradient(np.zeros((1, 2), np.float32), np.zeros((1, 2)), sigma)


@pytest.mark.parametrize("size", [0, -1])
def test_a_table_has_a_size(size):
    with pytest.raises(ValueError, match=str(size)):
        noise_table(0, size)
