"""Scalars for TensorBoard."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping


class TensorBoardWriter:
    """Writes scalars to an event file in `directory`, which it makes.

    TensorFlow is imported when a writer is made, not with this module.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        import tensorflow.compat.v1 as tf

        self._tf = tf
        with tf.Graph().as_default():  # the writer refuses to be made in eager mode
            self._writer = tf.summary.FileWriter(os.fspath(directory), flush_secs=10)
        self._closed = False

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Adds each value at `step`, but those that are NaN.

        Raises ValueError after `close()`.
        """
        if self._closed:
            raise ValueError(f"write at step {step} to a writer that was closed")
        summary = self._tf.Summary()
        for name, value in values.items():
            if not math.isnan(value):
                summary.value.add(tag=name, simple_value=float(value))
        if summary.value:
            self._writer.add_summary(summary, int(step))

    def close(self) -> None:
        """Flushes. May be called again."""
        if not self._closed:
            self._closed = True
            self._writer.close()
