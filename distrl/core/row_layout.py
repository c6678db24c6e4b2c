"""What the nests of rows look like that a batcher joins, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree

from distrl.core.nests import map_nest, unflattener
from distrl.core.specs import ArraySpec, Nest, named_leaves, validate


class RowLayout:
    """What all calls look like: the first one."""

    def __init__(self, nest: Nest):
        """Raises ValueError, naming the leaf, when one is not an array of rows."""
        named = named_leaves(nest)
        if not named:
            raise ValueError(f"batched call: expected arrays, got {nest!r}")
        for name, leaf in named:
            if not isinstance(leaf, np.ndarray) or not leaf.ndim:
                raise _wrong("batched call", name, "an array of rows", repr(leaf))
        self._spec = map_nest(lambda a: ArraySpec(a.shape[1:], a.dtype.name), nest)
        self._structure: Any = optree.tree_structure(nest)
        self._kinds = [(leaf.dtype, leaf.ndim, leaf.shape[1:]) for _, leaf in named]
        self.nest = unflattener(self._spec)

    def leaves_of(self, nest: Nest, max_rows: int) -> tuple[list[np.ndarray], int]:
        """The leaves, and their number of rows; raises ValueError, naming the leaf."""
        try:
            leaves: list[Any] = self._structure.flatten_up_to(nest)
        except ValueError:
            leaves = []
        if not leaves or not all(map(_fits, leaves, self._kinds)):
            validate(self._spec, nest, 1, "batched call")  # says what is wrong
        rows = len(leaves[0])
        for index, leaf in enumerate(leaves):
            if not 1 <= len(leaf) <= max_rows or len(leaf) != rows:
                name = named_leaves(self._spec)[index][0]
                expected = f"{rows} rows" if index else f"1 to {max_rows} rows"
                raise _wrong("batched call", name, expected, len(leaf))
        return leaves, rows


def _fits(leaf: Any, kind: tuple[np.dtype, int, tuple[int, ...]]) -> bool:
    return (
        isinstance(leaf, np.ndarray) and (leaf.dtype, leaf.ndim, leaf.shape[1:]) == kind
    )


def check_rows(leaves: list[Any], outputs: Nest, size: int) -> None:
    """Raises ValueError, naming the leaf, unless all have the rows of the batch."""
    for index, leaf in enumerate(leaves):
        shape = np.shape(leaf)
        if shape[:1] != (size,):
            name = named_leaves(outputs)[index][0]
            got = shape[0] if shape else "no axis of rows"
            raise _wrong("output", name, f"{size} rows", got)


def _wrong(what: str, name: str, expected: str, got: Any) -> ValueError:
    return ValueError(f"{what}, leaf {name!r}: expected {expected}, got {got}")
