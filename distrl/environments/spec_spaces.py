"""Nests of ArraySpec as Gymnasium spaces."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from distrl.core.specs import ArraySpec, Bound, Nest


def spec_space(spec: Nest) -> spaces.Space:
    """A space of Boxes whose `space_spec` is `spec`, but for the stacks of frames."""
    if isinstance(spec, dict):
        return spaces.Dict({key: spec_space(part) for key, part in spec.items()})
    if isinstance(spec, tuple):
        return spaces.Tuple([spec_space(part) for part in spec])
    low, high = _limits(spec)
    return spaces.Box(low, high, spec.shape, np.dtype(spec.dtype).type)


def _limits(leaf: ArraySpec) -> tuple[np.ndarray, np.ndarray]:
    dtype = np.dtype(leaf.dtype)
    if np.issubdtype(dtype, np.floating):
        least, most = -np.inf, np.inf
    elif dtype.kind == "b":
        least, most = False, True
    else:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    return _filled(leaf, leaf.minimum, least), _filled(leaf, leaf.maximum, most)


def _filled(leaf: ArraySpec, bound: Bound, default: float) -> np.ndarray:
    value = default if bound is None else bound
    if isinstance(value, tuple):
        return np.array(value, leaf.dtype).reshape(leaf.shape)
    return np.full(leaf.shape, value, leaf.dtype)
