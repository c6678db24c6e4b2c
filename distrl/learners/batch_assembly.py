"""Batches of one size from fragments of any."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import optree

from distrl.core.nests import concatenate, map_nest
from distrl.core.specs import Nest

Layout = tuple[optree.PyTreeSpec, list[tuple[str, tuple[int, ...]]]]


class BatchAssembler:
    """Cuts a stream of fragments into batches, in order; no row is lost or repeated.

    A batch has `batch_rows` rows: `batch_size`, rounded up to whole sequences of
    `sequence_length` rows. What is left of a fragment waits for the next batch. Batches
    may be views of the fragments.

    Raises ValueError for a number below 1.
    """

    def __init__(self, batch_size: int, sequence_length: int = 1):
        for name, number in (
            ("batch_size", batch_size),
            ("sequence_length", sequence_length),
        ):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        self._sequence_length = sequence_length
        self.batch_rows = math.ceil(batch_size / sequence_length) * sequence_length
        self._parts: deque[tuple[int, Nest]] = deque()
        self._layout: Layout | None = None
        self.rows_waiting = 0  # always fewer than `batch_rows` behind `add`

    def add(self, fragment: Nest) -> list[Nest]:
        """The batches that `fragment` completes.

        Raises ValueError, and takes nothing in, for a fragment that is empty, has
        another structure, dtype or shape of rows than the first one, leaves of unequal
        numbers of rows, or part of a sequence.
        """
        rows = self._checked(fragment)
        self._parts.append((rows, fragment))
        self.rows_waiting += rows
        batches = []
        while self.rows_waiting >= self.batch_rows:
            batches.append(self._take())
        return batches

    def _checked(self, fragment: Nest) -> int:
        rows = num_rows(fragment)
        layout = _layout(fragment)
        if layout != (self._layout or layout):
            raise ValueError(f"a fragment of {layout} behind {self._layout}")
        if rows % self._sequence_length:
            length = self._sequence_length
            raise ValueError(f"{rows} rows are not whole sequences of {length}")
        self._layout = layout
        return rows

    def _take(self) -> Nest:
        missing, parts = self.batch_rows, []
        while missing:
            rows, fragment = self._parts.popleft()
            if rows > missing:
                self._parts.appendleft((rows - missing, _rows(fragment, missing, rows)))
                rows, fragment = missing, _rows(fragment, 0, missing)
            parts.append(fragment)
            missing -= rows
        self.rows_waiting -= self.batch_rows
        return concatenate(parts)


def num_rows(nest: Nest) -> int:
    """The length of every leaf's first axis.

    Raises ValueError where there is none, it is 0, or lengths differ.
    """
    shapes = [np.shape(leaf) for leaf in optree.tree_leaves(nest)]
    lengths = {shape[0] if shape else None for shape in shapes}
    if len(lengths) != 1 or lengths & {None, 0}:
        raise ValueError(f"expected rows on the first axis, got shapes {shapes}")
    return int(shapes[0][0])


def rows_per_device(rows: int, sequence_length: int, num_devices: int) -> int:
    """How many rows each device trains on: an equal number of whole sequences.

    The rest of the batch is not used. Raises ValueError for numbers below 1, and for
    less than a sequence a device.
    """
    for name, number in (
        ("sequence_length", sequence_length),
        ("num_devices", num_devices),
    ):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    num_sequences = rows // sequence_length // num_devices
    if num_sequences < 1:
        raise ValueError(
            f"{rows} rows in sequences of {sequence_length} are less than one for each "
            f"of {num_devices} devices"
        )
    return num_sequences * sequence_length


def _rows(nest: Nest, begin: int, end: int) -> Nest:
    return map_nest(lambda leaf: leaf[begin:end], nest)


def _layout(nest: Nest) -> Layout:
    """Structure, dtypes and the shapes of rows."""
    leaves, structure = optree.tree_flatten(nest)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return structure, [(array.dtype.name, array.shape[1:]) for array in arrays]
