"""Infos of single environments in Gymnasium's vector layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def stack_infos(
    infos: Mapping[int, Mapping[str, Any]], num_envs: int
) -> dict[str, Any]:
    """`{key: values [N, ...], "_key": bool [N]}` of infos by slot.

    Numbers and arrays of equal shape become arrays with zeros in the other slots, dicts
    become dicts of such arrays, everything else arrays of objects with None.
    """
    keys = dict.fromkeys(key for info in infos.values() for key in info)
    stacked: dict[str, Any] = {}
    for key in keys:
        found = {slot: info[key] for slot, info in infos.items() if key in info}
        stacked[key] = _stack(found, num_envs)
        mask = stacked[f"_{key}"] = np.zeros(num_envs, bool)
        mask[list(found)] = True
    return stacked


def _stack(values: dict[int, Any], num_envs: int) -> Any:
    if all(isinstance(value, Mapping) for value in values.values()):
        return stack_infos(values, num_envs)
    kinds = int | float | bool | np.number | np.bool_ | np.ndarray
    if all(isinstance(value, kinds) for value in values.values()):
        arrays = {slot: np.asarray(value) for slot, value in values.items()}
        first = next(iter(arrays.values()))
        if all(array.shape == first.shape for array in arrays.values()):
            dtype = np.result_type(*{array.dtype for array in arrays.values()})
            stacked = np.zeros((num_envs, *first.shape), dtype)
            for slot, array in arrays.items():
                stacked[slot] = array
            return stacked
    objects = np.full(num_envs, None, object)
    for slot, value in values.items():
        objects[slot] = value
    return objects
