"""Scalars for TensorBoard."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping

from distrl.metrics.appended_file import AppendedFile
from distrl.metrics.event_records import framed


class TensorBoardWriter:
    """Writes scalars to an event file in `directory`, which it makes.

    A disk that fails must neither end nor hold up a run: see `AppendedFile`, in place
    of `tf.summary.FileWriter`, which raises the disk's errors in whoever writes, for
    good. TensorFlow is imported when a writer is made, not with this module.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        import tensorflow.compat.v1 as tf

        self._tf = tf
        now = time.time()
        version = tf.Event(wall_time=now, file_version="brain.Event:2")
        place = f"{int(now):010d}.{socket.gethostname()}.{os.getpid()}"
        self._file = AppendedFile(
            os.path.join(directory, f"events.out.tfevents.{place}"),
            head=framed(version.SerializeToString()),
            make_folder=True,
        )
        self._closed = False

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Adds each value at `step`, but those that are NaN.

        Raises ValueError after `close()`.
        """
        if self._closed:
            raise ValueError(f"write at step {step} to a writer that was closed")
        event = self._tf.Event(wall_time=time.time(), step=int(step))
        for name, value in values.items():
            if not math.isnan(value):
                event.summary.value.add(tag=name, simple_value=float(value))
        if event.summary.value:
            self._file.append(framed(event.SerializeToString()))

    def close(self) -> None:
        """May be called again."""
        self._closed = True
        self._file.close()
