"""Parameters as bytes: exact round trips, sizes checked."""

import ml_dtypes
import numpy as np
import pytest

from distrl.checkpoints.parameters import (
    ParameterSpec,
    array_dtype,
    flatten_parameters,
    unflatten_parameters,
)

RNG = np.random.default_rng(0)
ARRAYS = [
    RNG.integers(0, 256, 3, np.uint8),
    RNG.normal(size=(4, 5)).astype(np.float32),
    np.array([True, False, True]),
    RNG.normal(size=(2, 3)).astype(ml_dtypes.bfloat16),
    np.float64(np.pi).reshape(()),
    np.zeros((0, 4), np.float32),
    RNG.normal(size=(3, 4)).astype(np.float32).T,
    np.array([np.nan, np.inf, -0.0], np.float32),
    np.array(2**62 + 1),
]
SPECS = [ParameterSpec(f"p/{i}", a.shape, a.dtype.name) for i, a in enumerate(ARRAYS)]


def assert_same_bits(got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def test_round_trip_is_exact():
    data = flatten_parameters(ARRAYS)
    assert data.dtype == np.uint8
    assert data.shape == (sum(a.nbytes for a in ARRAYS),)
    for got, expected in zip(unflatten_parameters(data, SPECS), ARRAYS, strict=True):
        assert_same_bits(got, expected)


def test_both_ways_copy():
    array = np.ones(3, np.float32)
    data = flatten_parameters([array])
    (back,) = unflatten_parameters(data, [("p", [3], "float32")])
    array[:] = 5
    data[:] = 0
    np.testing.assert_array_equal(back, 1)
    back[0] = 7
    assert not data.any()


def test_nothing_at_all():
    assert flatten_parameters([]).shape == (0,)
    assert unflatten_parameters(np.zeros(0, np.uint8), []) == []


@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_size_is_refused_with_both_sizes(change):
    data = flatten_parameters(ARRAYS)
    wrong = np.zeros(len(data) + change, np.uint8)
    with pytest.raises(ValueError, match=f"{len(data)} bytes.*{len(wrong)}"):
        unflatten_parameters(wrong, SPECS)


@pytest.mark.parametrize("data", [np.zeros(4, np.int8), np.zeros((2, 2), np.uint8)])
def test_anything_but_a_row_of_bytes_is_refused(data):
    with pytest.raises(ValueError, match="expected 4 bytes"):
        unflatten_parameters(data, [("p", (), "float32")])


def test_objects_and_unknown_dtypes_are_refused():
    with pytest.raises(ValueError, match="object"):
        flatten_parameters([np.array([None])])
    with pytest.raises(ValueError, match="float33"):
        array_dtype("float33")
