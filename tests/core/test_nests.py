"""Nests: mapped, joined, taken apart and put together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from distrl.core.nests import concatenate, flatten_as, map_nest, unflatten_as
from distrl.core.specs import ArraySpec


class Pair(NamedTuple):
    first: Any
    second: Any


SPEC = Pair({"b": ArraySpec((2,), "float32"), "a": ArraySpec((), "int64")}, (4, 5))


def record(rows: int, offset: int = 0) -> Pair:
    numbers = np.arange(offset, offset + rows)
    return Pair(
        {"a": numbers, "b": np.stack([numbers, -numbers], 1)}, (numbers, numbers)
    )


def test_map_pairs_corresponding_leaves():
    mapped = map_nest(lambda x, y: x - y, Pair({"a": 5}, (3,)), Pair({"a": 1}, (2,)))
    assert mapped == Pair({"a": 4}, (1,))


def test_concatenation_joins_rows_leaf_by_leaf():
    joined = concatenate([record(2), record(1, offset=2), record(3, offset=3)])
    assert isinstance(joined, Pair)
    for got, expected in zip(
        flatten_as(SPEC, joined), flatten_as(SPEC, record(6)), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_a_single_record_is_not_copied():
    single = record(3)
    assert concatenate([single]) is single


def test_flat_leaves_follow_the_spec_and_come_back():
    flat = flatten_as(SPEC, record(2))
    assert flat[0] is not None and flat[0].ndim == 1 and flat[1].ndim == 2  # a, b
    rebuilt = unflatten_as(SPEC, flat)
    assert isinstance(rebuilt, Pair) and set(rebuilt.first) == {"a", "b"}
    assert rebuilt.first["b"] is flat[1] and rebuilt.second[1] is flat[3]


@pytest.mark.parametrize(
    "other",
    [
        Pair({"a": 1}, (2, 3)),
        Pair({"a": 1, "b": 2, "c": 3}, (2, 3)),
        Pair({"a": 1, "b": 2}, (3,)),
        ({"a": 1, "b": 2}, 3),
    ],
)
def test_another_structure_is_refused(other):
    with pytest.raises(ValueError):
        flatten_as(SPEC, other)
