"""Batches of one size from fragments of any, and their split over devices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from distrl.learners.batch_assembly import (
    BatchAssembler,
    num_rows,
    rows_per_device,
)


class Rows(NamedTuple):
    a: np.ndarray
    b: dict


def fragment(first: int, number: int) -> Rows:
    ids = np.arange(first, first + number)
    return Rows(ids, {"c": np.stack([ids, -ids], axis=1)})


def assembled(assembler: BatchAssembler, sizes: list[int]) -> list[Rows]:
    batches, first = [], 0
    for size in sizes:
        batches += assembler.add(fragment(first, size))
        assert assembler.rows_waiting < assembler.batch_rows
        first += size
    return batches


def test_columns_are_joined_in_order():
    assembler = BatchAssembler(5)
    assert not assembler.add({"a": np.array([1, 2, 3]), "b": np.array([4, 5, 6])})
    assert not assembler.add({"a": np.array([1]), "b": np.array([4])})
    (batch,) = assembler.add({"a": np.array([1]), "b": np.array([5])})
    assert batch["a"].tolist() == [1, 2, 3, 1, 1]
    assert batch["b"].tolist() == [4, 5, 6, 4, 5]


@pytest.mark.parametrize(
    "sizes", [[74] * 20, [50] * 10, [25] * 9, [1000], [1] * 230, [99, 1, 101, 350]]
)
def test_batches_are_exact_and_no_row_is_lost_or_repeated(sizes):
    assembler = BatchAssembler(100)
    batches = assembled(assembler, sizes)
    total = sum(sizes)
    assert [len(batch.a) for batch in batches] == [100] * (total // 100)
    assert assembler.rows_waiting == total % 100
    seen = np.concatenate([batch.a for batch in batches])
    assert seen.tolist() == list(range(total - total % 100))
    for batch in batches:
        assert (batch.b["c"] == np.stack([batch.a, -batch.a], axis=1)).all()


def test_sequences_stay_together():
    assembler = BatchAssembler(12, sequence_length=4)
    batches = assembled(assembler, [8, 16, 4, 20])
    assert [len(batch.a) for batch in batches] == [12] * 4
    for batch in batches:
        assert (batch.a[::4] % 4 == 0).all()


def test_a_batch_is_rounded_up_to_whole_sequences():
    assembler = BatchAssembler(100, sequence_length=74)
    assert assembler.batch_rows == 148
    assert [len(batch.a) for batch in assembled(assembler, [74] * 5)] == [148, 148]


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"a": np.zeros((0, 2)), "b": np.zeros(0)}, r"\(0, 2\)"),
        ({"a": np.zeros((2, 2)), "b": np.zeros(4)}, r"\(4,\)"),
        ({"a": np.zeros((2, 2)), "b": np.array(1.0)}, r"\(\)"),
        ({"a": np.zeros((2, 2))}, "behind"),
        ({"a": np.zeros((2, 3)), "b": np.zeros(2)}, "behind"),
        ({"a": np.zeros((2, 2), np.float32), "b": np.zeros(2)}, "float32.*behind"),
        ({"a": np.zeros((3, 2)), "b": np.zeros(3)}, "3 rows are not whole sequences"),
    ],
)
def test_a_bad_fragment_is_named_and_not_taken_in(bad, named):
    assembler = BatchAssembler(4, sequence_length=2)
    assembler.add({"a": np.ones((2, 2)), "b": np.ones(2)})
    with pytest.raises(ValueError, match=named):
        assembler.add(bad)
    (batch,) = assembler.add({"a": np.ones((2, 2)), "b": np.ones(2)})
    assert batch["b"].tolist() == [1.0] * 4


def test_a_bad_first_fragment_sets_no_example():
    assembler = BatchAssembler(2, sequence_length=2)
    with pytest.raises(ValueError, match="whole sequences"):
        assembler.add(np.zeros(3))
    assert len(assembler.add({"a": np.zeros(2)})) == 1


def test_impossible_sizes_are_named():
    with pytest.raises(ValueError, match="batch_size .* got 0"):
        BatchAssembler(0)
    with pytest.raises(ValueError, match="sequence_length .* got 0"):
        BatchAssembler(1, 0)
    with pytest.raises(ValueError, match="rows on the first axis"):
        num_rows({})


@pytest.mark.parametrize(
    ("rows", "sequence_length", "num_devices", "expected"),
    [(21, 3, 2, 9), (148, 1, 2, 74), (101, 1, 2, 50), (148, 1, 3, 49), (7, 7, 1, 7)],
)
def test_rows_of_each_device(rows, sequence_length, num_devices, expected):
    assert rows_per_device(rows, sequence_length, num_devices) == expected


@pytest.mark.parametrize("rows, length, devices", [(1, 1, 2), (5, 3, 2), (0, 1, 1)])
def test_less_than_a_sequence_a_device_is_refused(rows, length, devices):
    with pytest.raises(ValueError, match=f"{rows} rows in sequences of {length}"):
        rows_per_device(rows, length, devices)
    with pytest.raises(ValueError, match="num_devices .* got 0"):
        rows_per_device(rows, length, 0)
