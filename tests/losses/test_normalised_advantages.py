"""Advantages of mean 0 and standard deviation 1."""

import numpy as np
import pytest

from distrl.losses.returns import normalised_advantages

T, B = 23, 6


def test_normalised_advantages():
    rng = np.random.default_rng(0)
    advantages, mask = 5 + 3 * rng.normal(size=(T, B)), rng.random((T, B)) < 0.7
    advantages[~mask] = 1e6
    result = normalised_advantages(advantages, mask)
    assert result.dtype == np.float32 and (result[~mask] == 0).all()
    assert result[mask].mean() == pytest.approx(0, abs=1e-6)
    assert result[mask].std() == pytest.approx(1, rel=1e-5)
    order = np.argsort(advantages[mask])
    np.testing.assert_array_equal(order, np.argsort(result[mask], kind="stable"))


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_advantages_without_spread_are_zero(rows):
    result = normalised_advantages(np.full(4, 0.1), np.arange(4) < rows)
    np.testing.assert_allclose(result, 0, atol=1e-6)


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="mask"):
        normalised_advantages(np.zeros(3), np.zeros(2, bool))
