"""Checks of what a loss is given."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def check_ranks(rank: int, **tensors: tf.Tensor) -> None:
    """Raises ValueError, naming the tensor, unless each one has `rank` axes.

    Sizes may be unknown, ranks may not.
    """
    for name, tensor in tensors.items():
        if tensor.shape.rank != rank:
            raise ValueError(f"{name} must have rank {rank}, got shape {tensor.shape}")
