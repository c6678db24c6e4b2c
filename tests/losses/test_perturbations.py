"""Names of perturbations mean the same in every task."""

import numpy as np
import pytest

from distrl.core.errors import ConfigError
from distrl.losses.evolution import noise_table
from distrl.losses.perturbations import Perturbations

SIZE = 7


@pytest.mark.parametrize("table_size", [50, None])
def test_a_name_is_the_same_vector_in_every_task(table_size):
    here, there = (Perturbations(5, table_size, SIZE) for _ in range(2))
    names = here.draw(np.random.default_rng(1), 9)
    assert names.dtype == np.int64 and len(np.unique(names)) > 1
    np.testing.assert_array_equal(here.rows(names), there.rows(names))
    np.testing.assert_array_equal(here.rows(names[3:4])[0], here.rows(names)[3])
    assert here.rows(names).shape == (9, SIZE)


def test_offsets_cover_the_whole_table_and_no_more():
    own = Perturbations(5, SIZE + 2, SIZE)
    names = own.draw(np.random.default_rng(1), 200)
    assert set(names.tolist()) == {0, 1, 2}
    table = noise_table(5, SIZE + 2)
    np.testing.assert_array_equal(own.rows(np.array([2]))[0], table[2:])


def test_another_seed_is_another_table():
    one, other = Perturbations(5, 50, SIZE), Perturbations(6, 50, SIZE)
    names = np.arange(3)
    assert not np.array_equal(one.rows(names), other.rows(names))


def test_a_table_that_is_too_small_is_a_config_error_with_both_numbers():
    with pytest.raises(ConfigError, match="6 numbers.*7 parameters"):
        Perturbations(5, SIZE - 1, SIZE)
    Perturbations(5, SIZE, SIZE)
