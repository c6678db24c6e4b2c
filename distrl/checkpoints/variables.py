"""What variables are called and look like, and giving them values from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.parameters import ParameterSpec


def parameter_specs(variables: Sequence[tf.Variable]) -> list[ParameterSpec]:
    """Name, shape and dtype of each variable."""
    return [
        ParameterSpec(v.op.name, tuple(v.shape.as_list()), v.dtype.base_dtype.name)
        for v in variables
    ]


def build_loading(
    variables: Sequence[tf.Variable],
) -> tuple[list[tf.Tensor], tf.Operation]:
    """Placeholders, one a variable, and the operation that assigns them all."""
    values = [tf.placeholder(v.dtype.base_dtype, v.shape) for v in variables]
    pairs = zip(variables, values, strict=True)
    return values, tf.group(*[v.assign(x, read_value=False) for v, x in pairs])


def select_parameters(
    specs: Sequence[ParameterSpec], named: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """The arrays in the order of `specs`, of which there may be more.

    Raises ValueError, naming them, for parameters that are missing or do not fit.
    """
    missing = [spec.name for spec in specs if spec.name not in named]
    if missing:
        raise ValueError(f"parameters without a value: {missing}")
    arrays = [named[spec.name] for spec in specs]
    check_parameters(specs, arrays)
    return arrays


def check_parameters(
    specs: Sequence[ParameterSpec], arrays: Sequence[np.ndarray]
) -> None:
    """Raises ValueError, naming the parameter, unless number, shapes, dtypes fit."""
    if len(arrays) != len(specs):
        raise ValueError(f"expected {len(specs)} parameters, got {len(arrays)}")
    for spec, array in zip(specs, arrays, strict=True):
        if array.shape != spec.shape or array.dtype.name != spec.dtype:
            raise ValueError(
                f"{spec.name}: expected {spec.dtype}{list(spec.shape)}, "
                f"got {array.dtype}{list(array.shape)}"
            )
