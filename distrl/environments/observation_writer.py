"""How one observation gets into its row of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distrl.core.specs import ArraySpec, Nest, leaves
from distrl.environments.spaces import leaf_getters, observation_check

#: Called with the `[N, ...]` leaves, the row, and one observation.
ObservationWriter = Callable[[list[np.ndarray], int, Any], None]


def observation_writer(spec: Nest) -> ObservationWriter:
    """A function that copies one observation of `spec` into a row.

    It raises WrongObservation for another structure, shape or dtype.
    """
    shapes = [leaf.shape for leaf in leaves(spec)]
    getters, check = leaf_getters(spec), observation_check(spec)

    def write_nest(buffers: list[np.ndarray], row: int, value: Any) -> None:
        try:
            parts = [np.asarray(get(value)) for get in getters]
            if [part.shape for part in parts] != shapes:
                raise ValueError("a shape that assignment would have broadcast")
            for buffer, part in zip(buffers, parts, strict=True):
                buffer[row] = part
        except (LookupError, TypeError, ValueError):
            check(value)  # raises a better one
            raise

    def write_array(buffers: list[np.ndarray], row: int, value: Any) -> None:
        if type(value) is np.ndarray and value.shape == shapes[0]:
            buffers[0][row] = value
        else:
            write_nest(buffers, row, value)

    return write_array if isinstance(spec, ArraySpec) else write_nest  # usual: one
