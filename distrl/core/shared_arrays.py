"""Arrays in memory that several processes share."""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

_ALIGNMENT = 64  # bytes: a cache line, so that two writers never share one
# Before 3.13 a mapping has a descriptor of its own, as long as it lives.
_MAPPING: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

Layout = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]  # a (shape, dtype) an array


class SharedArrays:
    """Arrays, in order, in one block of anonymous shared memory.

    The block never has a name: it is known by a file descriptor alone, so nothing can
    stay behind in /dev/shm, not even when every process is killed. One process creates
    it, the others attach to the descriptor that they were sent:

        ours = SharedArrays.create([((8, 84, 84), np.dtype(np.uint8))])
        theirs = SharedArrays.attach(fd, ours.layout)

    Nothing is locked: a message tells the other side when it may look.
    """

    def __init__(self, fd: int, layout: Layout):
        """Takes over `fd`, which must hold `num_bytes(layout)` bytes; else ValueError.

        `fd` is closed also when this raises.
        """
        self.fd, self.layout = fd, layout
        self.arrays: list[np.ndarray] = []
        try:
            size = num_bytes(layout)
            if os.fstat(fd).st_size < size:
                got = os.fstat(fd).st_size
                raise ValueError(f"the layout needs {size} bytes, the block has {got}")
            self._memory: mmap.mmap | None = mmap.mmap(fd, size, **_MAPPING)
        except BaseException:
            os.close(fd)
            raise
        places = zip(layout, _offsets(layout)[:-1], strict=True)
        self.arrays = [
            np.ndarray(shape, dtype, self._memory, offset)
            for (shape, dtype), offset in places
        ]

    @classmethod
    def create(cls, fields: Sequence[tuple[Sequence[int], Any]]) -> SharedArrays:
        """A new block of zeros for arrays of these (shape, dtype).

        Raises ValueError for a dtype that holds objects or has no size, and for a
        negative dimension.
        """
        layout = tuple(_checked(shape, dtype) for shape, dtype in fields)
        fd = _anonymous_file()
        try:
            os.ftruncate(fd, num_bytes(layout))
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, layout)

    @classmethod
    def attach(cls, fd: int, layout: Layout) -> SharedArrays:
        """The same arrays, in the process that was sent `fd`, which this takes over."""
        return cls(fd, tuple(_checked(shape, dtype) for shape, dtype in layout))

    def close(self) -> None:
        """Lets go of the memory, and at once of the descriptor; idempotent.

        Arrays that somebody still holds stay valid: the memory goes with the last one.
        """
        if self._memory is None:
            return
        os.close(self.fd)
        # The mapping is never closed by hand: NumPy's arrays do not count as its users,
        # and one that somebody still holds would crash the process.
        self.fd, self.arrays, self._memory = -1, [], None

    def __enter__(self) -> SharedArrays:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("SharedArrays cannot be pickled: send `fd` and `layout`")


def num_bytes(layout: Layout) -> int:
    """The size of the block; never 0, which cannot be mapped."""
    return max(_offsets(layout)[-1], 1)


def _offsets(layout: Layout) -> list[int]:
    """Where each array starts, and where the last one ends, in bytes."""
    offsets = [0]
    for shape, dtype in layout:
        end = offsets[-1] + math.prod(shape) * dtype.itemsize
        offsets.append(-(-end // _ALIGNMENT) * _ALIGNMENT)
    return offsets


def _checked(shape: Sequence[int], dtype: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    dtype = np.dtype(dtype)
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"cannot share an array of dtype {dtype}: no fixed size")
    if dtype.subdtype is not None:
        raise ValueError(f"dtype {dtype} has a shape: make it part of the array's")
    if any(length < 0 for length in shape):
        raise ValueError(f"cannot share an array of shape {tuple(shape)}")
    return tuple(int(length) for length in shape), dtype


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("distrl", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # unlinked, but on a disk
        return os.dup(file.fileno())
