"""The tensors through which arrays enter a graph."""

from __future__ import annotations

import re

import tensorflow.compat.v1 as tf

from distrl.core.nests import unflatten_as
from distrl.core.records import ReplayBatch, replay_batch_spec
from distrl.core.specs import EnvironmentSpec, Nest, named_leaves


def placeholders(spec: Nest, name: str) -> Nest:
    """One placeholder `[None, *shape]` a leaf, in the structure of `spec`.

    A leaf is called `<name>_<its path>`, what TensorFlow does not take replaced by
    an underscore; the order of `specs.leaves` is the order in which to feed.
    """
    tensors = [
        tf.placeholder(leaf.dtype, (None, *leaf.shape), tensor_name(name, path))
        for path, leaf in named_leaves(spec)
    ]
    return unflatten_as(spec, tensors)


def batch_placeholders(spec: EnvironmentSpec) -> ReplayBatch:
    """Placeholders for what a memory serves."""
    return placeholders(replay_batch_spec(spec), "batch")


def tensor_name(name: str, path: str) -> str:
    """A name that TensorFlow takes, for the leaf at `path` ('' for a bare leaf)."""
    return re.sub(r"[^A-Za-z0-9_]", "_", f"{name}_{path}" if path else name)
