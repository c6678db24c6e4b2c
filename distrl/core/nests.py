"""Batches of nests: map, stack, split. Structure work is optree's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from distrl.core.specs import ArraySpec, Nest


def map_nest(function: Callable[..., Any], *nests: Nest) -> Nest:
    """`function` applied to corresponding leaves."""
    return optree.tree_map(function, *nests)


def concatenate(nests: Sequence[Nest]) -> Nest:
    """Nests of equal structure, joined along the first axis of every leaf."""
    if len(nests) == 1:
        return nests[0]
    return map_nest(lambda *parts: np.concatenate(parts), *nests)


def flatten_as(spec: Nest, nest: Nest) -> list[Any]:
    """The leaves of `nest`, in the order of `spec`'s leaves.

    Raises ValueError when the structures differ.
    """
    return optree.tree_structure(spec).flatten_up_to(nest)


def unflattener(spec: Nest) -> Callable[[Sequence[Any]], Nest]:
    """`unflatten_as` for one spec, without looking at it each time."""
    structure = optree.tree_structure(spec)
    if isinstance(spec, ArraySpec):
        return lambda flat: flat[0]
    return lambda flat: optree.tree_unflatten(structure, flat)


def unflatten_as(spec: Nest, flat: Sequence[Any]) -> Nest:
    """The nest of `spec`'s structure with these leaves."""
    return optree.tree_unflatten(optree.tree_structure(spec), flat)
