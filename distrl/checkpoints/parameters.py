"""Parameters as bytes, as they travel through the parameter store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np


class ParameterSpec(NamedTuple):
    """One parameter: the variable's name, its shape, the name of its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def array_dtype(name: str) -> np.dtype:
    """The dtype of this name, also those that NumPy does not know (bfloat16).

    Raises ValueError for an unknown name.
    """
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise ValueError(f"unknown dtype {name!r}") from None


def array_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of an array in C order, uint8 1-D; shares memory where it can.

    Raises ValueError for an array of Python objects.
    """
    if array.dtype.hasobject:
        raise ValueError(f"expected numbers, got an array of {array.dtype}")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def flatten_parameters(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """All arrays one after the other as new bytes, uint8 1-D."""
    if not arrays:
        return np.zeros(0, np.uint8)
    return np.concatenate([array_bytes(array) for array in arrays])


def unflatten_parameters(
    data: np.ndarray, specs: Sequence[ParameterSpec | tuple[str, Sequence[int], str]]
) -> list[np.ndarray]:
    """The arrays whose bytes `flatten_parameters` joined, as copies.

    Raises ValueError unless `data` is uint8 1-D and as long as `specs` say.
    """
    parameters = [ParameterSpec(name, tuple(shape), t) for name, shape, t in specs]
    sizes = [math.prod(p.shape) * array_dtype(p.dtype).itemsize for p in parameters]
    if data.dtype != np.uint8 or data.shape != (sum(sizes),):
        raise ValueError(
            f"expected {sum(sizes)} bytes for {len(sizes)} parameters, "
            f"got {data.dtype}{list(data.shape)}"
        )
    arrays, offset = [], 0
    for parameter, size in zip(parameters, sizes, strict=True):
        part = data[offset : offset + size].copy()
        arrays.append(part.view(array_dtype(parameter.dtype)).reshape(parameter.shape))
        offset += size
    return arrays
