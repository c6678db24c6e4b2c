"""Many arrays in one .npz file, hashed as it is written."""

from __future__ import annotations

import hashlib
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from distrl.checkpoints.parameters import array_bytes, array_dtype

Pause = Callable[[float], object]  # is told the seconds that a block took

_BLOCK_BYTES = 4 << 20  # a thread that computes lets this one go on once in 5 ms


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray], pause: Pause | None = None
) -> str:
    """The SHA-256 of the archive that it writes, an entry an array.

    Not by `np.savez`, whose argument names are no array names, and which holds the
    interpreter for 16 MiB at a time. `pause` is called after every block (4 MiB).
    Raises ValueError for a dtype that cannot be kept, and OSError.
    """
    with path.open("wb") as file:
        output: Any = _HashedOutput(file, pause)
        with zipfile.ZipFile(output, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    _write_entry(entry, _storable(array))
    digest: str = output.digest
    return digest


def read_arrays(
    path: Path, described: Iterable[tuple[str, str, list[int]]]
) -> dict[str, np.ndarray]:
    """The arrays of these names, dtypes and shapes.

    Raises OSError, KeyError, ValueError or zipfile.BadZipFile.
    """
    with np.load(path, allow_pickle=False) as archive:
        return {
            name: _restored(archive[name], dtype, shape)
            for name, dtype, shape in described
        }


def file_digest(path: Path) -> str:
    """SHA-256 of the bytes of a file, in hex digits. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class _HashedOutput:
    """A file that is hashed as it is written: each byte is handled once.

    Zip archives take it for a stream: what was written is never gone back to. Hashing
    and writing blocks lets other threads run.
    """

    def __init__(self, file: BinaryIO, pause: Pause | None):
        self._file, self._pause = file, pause
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def write(self, data: Any) -> int:
        begin = time.monotonic()
        self._digest.update(data)
        written = self._file.write(data)
        if self._pause is not None:
            self._pause(time.monotonic() - begin)
        return written

    def flush(self) -> None:
        self._file.flush()


def _write_entry(file: Any, array: np.ndarray) -> None:
    """NumPy's file format."""
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": array.shape,
    }
    np.lib.format.write_array_header_1_0(file, header)
    data = array_bytes(array).data
    for start in range(0, len(data), _BLOCK_BYTES):
        file.write(data[start : start + _BLOCK_BYTES])


def _storable(array: np.ndarray) -> np.ndarray:
    """The array, or its bytes if NumPy's file format cannot say what they are.

    Raises ValueError for a dtype that its name does not give back.
    """
    array = np.asarray(array)
    if array.dtype.kind == "U":
        return array
    known = not array.dtype.hasobject and array.dtype.names is None
    if not known or array_dtype(array.dtype.name) != array.dtype.newbyteorder("="):
        raise ValueError(f"cannot save an array of dtype {array.dtype}")
    return array_bytes(array) if array.dtype.kind == "V" else array


def _restored(stored: np.ndarray, dtype: str, shape: list[int]) -> np.ndarray:
    if stored.dtype.name == dtype:
        return stored
    return stored.view(array_dtype(dtype)).reshape(shape)
