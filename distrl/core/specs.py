"""What arrays look like: dtype, shape, bounds; for one leaf and for an environment."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, NamedTuple

import numpy as np
import optree

Nest = Any  # a leaf, or dicts, tuples and named tuples of leaves
Bound = float | tuple[float, ...] | None


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """One array without its leading (batch or time) axes.

    `minimum` and `maximum` are inclusive: one number for all elements, or a flat
    tuple with one number an element (C order). `num_stacked` > 1 says that the first
    axis is a stack of that many consecutive frames, oldest first, of which only the
    last one is new at each step.
    """

    shape: tuple[int, ...]
    dtype: str
    minimum: Bound = None
    maximum: Bound = None
    num_stacked: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype).name)
        if any(n < 0 for n in self.shape):
            raise ValueError(f"negative size in shape {self.shape}")
        if self.num_stacked < 1:
            raise ValueError(f"num_stacked must be at least 1, got {self.num_stacked}")
        if self.num_stacked > 1 and self.shape[:1] != (self.num_stacked,):
            raise ValueError(
                f"a stack of {self.num_stacked} needs it as its first axis, "
                f"got shape {self.shape}"
            )

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """The shape of what is new at each step."""
        return self.shape[1:] if self.num_stacked > 1 else self.shape

    @property
    def num_bytes(self) -> int:
        """Bytes of one element of the batch."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def num_values(self) -> int:
        """How many values a scalar integer with bounds can take.

        Raises ValueError for any other spec.
        """
        integer = np.issubdtype(np.dtype(self.dtype), np.integer)
        low, high = self.minimum, self.maximum
        if self.shape or not integer or low is None or high is None:
            raise ValueError(f"expected a bounded scalar integer, got {self}")
        return int(np.asarray(high).item()) - int(np.asarray(low).item()) + 1

    def zeros(self, *leading: int) -> np.ndarray:
        """Zeros of shape `[*leading, *shape]`."""
        return np.zeros((*leading, *self.shape), self.dtype)


class EnvironmentSpec(NamedTuple):
    """What an environment shows and takes: nests of ArraySpec."""

    observation: Nest
    action: Nest


def leaves(spec: Nest) -> list[Any]:
    """The leaves of a nest, dicts in the order of their sorted keys."""
    return optree.tree_leaves(spec)


def named_leaves(nest: Nest) -> list[tuple[str, Any]]:
    """Every leaf with its path of keys, fields and indices, joined by '/' ('' for a
    bare leaf). Too slow for hot loops."""
    paths, values, _ = optree.tree_flatten_with_accessor(nest)
    names = [
        "/".join(str(getattr(entry, "field", entry.entry)) for entry in path)
        for path in paths
    ]
    return list(zip(names, values, strict=True))


def leaf_names(name: str, spec: Nest) -> list[str]:
    """`name`, or for a nest "name/<path, / as _>", of each leaf; all different."""
    paths = [path.replace("/", "_") for path, _ in named_leaves(spec)]
    names = [f"{name}/{path}" if path else name for path in paths]
    if len(set(names)) < len(names):
        return [f"{each}_{index}" for index, each in enumerate(names)]
    return names


def describe(spec: Nest) -> dict[str, str]:
    """One line of text a leaf, for messages and comparisons."""
    return {
        name or "array": f"{leaf.dtype}{list(leaf.shape)} in "
        f"[{leaf.minimum}, {leaf.maximum}]"
        + (f", {leaf.num_stacked} stacked" if leaf.num_stacked > 1 else "")
        for name, leaf in named_leaves(spec)
    }


def digest(spec: Nest) -> str:
    """A short hash that is equal exactly when structure, leaves and bounds are."""
    lines = [list(describe(leaf).values()) for leaf in leaves(spec)]
    text = json.dumps([str(optree.tree_structure(spec)), lines])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def validate(spec: Nest, value: Nest, num_leading: int, what: str) -> None:
    """Raises ValueError, naming the leaf, unless `value` fits `spec`.

    Structure, dtype and trailing shape are compared; `num_leading` axes are free.
    """
    expected, structure = optree.tree_flatten(spec)
    try:
        got = structure.flatten_up_to(value)
    except ValueError:
        raise ValueError(
            f"{what}: expected leaves {[name for name, _ in named_leaves(spec)]}, "
            f"got {[name for name, _ in named_leaves(value)]}"
        ) from None
    for index, (leaf, array) in enumerate(zip(expected, got, strict=True)):
        if not _fits(leaf, array, num_leading):
            name, _ = named_leaves(spec)[index]
            dtype = getattr(array, "dtype", type(array).__name__)
            raise ValueError(
                f"{what}, leaf {name!r}: expected {leaf.dtype}{list(leaf.shape)} "
                f"behind {num_leading} leading axes, got {dtype}{list(np.shape(array))}"
            )


def _fits(leaf: ArraySpec, array: Any, num_leading: int) -> bool:
    return (
        isinstance(array, np.ndarray | np.generic)
        and array.dtype.name == leaf.dtype
        and array.ndim == num_leading + len(leaf.shape)
        and array.shape[num_leading:] == leaf.shape
    )
