"""Specs: what they refuse, and when two of them are the same."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from distrl.core.specs import ArraySpec, describe, digest, named_leaves, validate


class Point(NamedTuple):
    x: Any
    y: Any


IMAGE = ArraySpec((4, 84, 84), "uint8", 0, 255, num_stacked=4)
A, B = ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 1)


def test_sizes():
    assert IMAGE.num_bytes == 4 * 84 * 84
    assert A.num_bytes == 12 and B.num_bytes == 8
    assert IMAGE.frame_shape == (84, 84) and A.frame_shape == (3,)
    zeros = IMAGE.zeros(2, 1)
    assert zeros.shape == (2, 1, 4, 84, 84) and zeros.dtype == np.uint8


def test_dtypes_have_one_spelling():
    assert ArraySpec([3], np.float32) == A and ArraySpec((3,), "f4") == A


@pytest.mark.parametrize("shape", [(4, -1), (-2,)])
def test_negative_sizes_are_refused(shape):
    with pytest.raises(ValueError, match="-"):
        ArraySpec(shape, "uint8")


@pytest.mark.parametrize(
    ("shape", "num_stacked"), [((), 4), ((3, 84, 84), 4), ((84, 84, 4), 4), ((4,), 0)]
)
def test_a_stack_is_the_first_axis(shape, num_stacked):
    with pytest.raises(ValueError, match=str(num_stacked)):
        ArraySpec(shape, "uint8", num_stacked=num_stacked)


def test_num_values_counts_both_bounds():
    assert B.num_values == 2
    assert ArraySpec((), "int32", -3, 4).num_values == 8


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec((), "int64"),
        ArraySpec((), "int64", 0),
        ArraySpec((), "float32", 0, 1),
        ArraySpec((1,), "int64", 0, 1),
    ],
)
def test_only_bounded_scalar_integers_have_a_number_of_values(spec):
    with pytest.raises(ValueError, match="bounded scalar integer"):
        spec.num_values  # noqa: B018


def test_leaves_have_the_paths_that_a_reader_expects():
    names = [name for name, _ in named_leaves({"b": Point(1, (2, 3)), "a": 4})]
    assert names == ["a", "b/x", "b/y/0", "b/y/1"]
    assert named_leaves(A) == [("", A)]


def test_digests_are_the_same_for_equal_specs():
    assert digest({"a": A, "b": B}) == digest({"b": B, "a": ArraySpec((3,), "float32")})


def test_digests_differ_whenever_anything_differs():
    variants = [
        A,
        B,
        ArraySpec((3,), "float64"),
        ArraySpec((4,), "float32"),
        ArraySpec((3, 1), "float32"),
        ArraySpec((3,), "float32", 0),
        ArraySpec((3,), "float32", None, 0),
        ArraySpec((3,), "float32", 0, 1),
        ArraySpec((3,), "float32", (0, 0, 0), 1),
        ArraySpec((3,), "float32", num_stacked=3),
        (A,),
        [A],
        {"a": A},
        {"b": A},
        (A, B),
        (B, A),
        (A, (B,)),
        Point(A, B),
        {"x": A, "y": B},
        {"0": A, "1": B},
        {"a/b": A},
        {"a": {"b": A}},
        {"a/b": A, "a": {"b": A}},
    ]
    digests = [digest(variant) for variant in variants]
    same = [v for v, d in zip(variants, digests, strict=True) if digests.count(d) > 1]
    assert not same


def test_descriptions_say_what_a_user_must_compare():
    assert describe({"image": IMAGE, "speed": A}) == {
        "image": "uint8[4, 84, 84] in [0, 255], 4 stacked",
        "speed": "float32[3] in [None, None]",
    }
    assert list(describe(B)) == ["array"]


def test_what_fits_is_valid_whatever_the_leading_axes():
    validate({"a": A}, {"a": np.zeros((5, 3), np.float32)}, 1, "x")
    validate({"a": A}, {"a": np.zeros((0, 3), np.float32)}, 1, "x")
    validate(A, np.zeros((2, 5, 3), np.float32), 2, "x")
    validate(B, np.int64(1), 0, "x")


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.zeros((5, 3), np.float64), "float64"),
        (np.zeros((5, 4), np.float32), r"\[5, 4\]"),
        (np.zeros((3,), np.float32), r"\[3\]"),
        (np.zeros((5, 3, 1), np.float32), r"\[5, 3, 1\]"),
        (np.zeros((), np.float32), r"\[\]"),
        (1.5, "float"),
    ],
)
def test_the_leaf_that_does_not_fit_is_named(array, got):
    value = {"a": np.zeros((5,), np.int64), "pos": Point(array, array)}
    spec = {"a": ArraySpec((), "int64"), "pos": Point(A, A)}
    with pytest.raises(
        ValueError, match=rf"channel q, leaf 'pos/x'.*float32\[3\].*{got}"
    ):
        validate(spec, value, 1, "channel q")


def test_a_missing_leading_axis_is_seen():
    with pytest.raises(ValueError, match="behind 1 leading"):
        validate(B, np.int64(1), 1, "x")


def test_other_leaves_are_named():
    with pytest.raises(ValueError, match=r"what.*'a', 'b'.*'a', 'c'"):
        validate({"a": A, "b": A}, {"a": 1, "c": 2}, 1, "what")
