"""Checkpoints of arrays and counters in a directory, the newest few and named ones."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from distrl.checkpoints.directories import (
    point_link,
    publish_directory,
    remove_leftovers,
)
from distrl.checkpoints.parameters import array_bytes, array_dtype
from distrl.core.errors import ConfigError

FORMAT = "distrl checkpoint 1"
ARRAYS, COUNTERS, SENTINEL = "arrays.npz", "counters.json", "COMPLETE"

Arrays = dict[str, np.ndarray]


class CheckpointStore:
    """Numbered checkpoints, of which the newest `keep` stay, and named ones.

        store.save(learner_steps, arrays, counters)
        path = store.newest()
        if path is not None:
            arrays, counters = store.load(path)

    A checkpoint is a directory: `arrays.npz` (an entry an array, which NumPy reads
    too), `counters.json` (the counters, and what the arrays are, with their digest),
    and, written last, `COMPLETE` with the digest of `counters.json`. It appears in
    one rename. One process writes; any number read.
    """

    def __init__(self, directory: str | Path, keep: int = 5):
        """Touches nothing on disk. Raises ValueError unless `keep` is at least 1."""
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.directory = Path(directory)
        self._keep = keep

    def save(
        self, number: int, arrays: Mapping[str, np.ndarray], counters: Mapping[str, Any]
    ) -> Path:
        """Saves, then deletes the oldest numbers beyond `keep`; returns the path.

        A checkpoint of the same number is replaced. Raises ValueError for a negative
        number and for what cannot be written: objects in arrays, counters that are
        not JSON.
        """
        if number < 0:
            raise ValueError(f"number must be at least 0, got {number}")
        path = self.directory / f"{number:012d}"
        remove_leftovers(self.directory)
        publish_directory(path, _writer(arrays, counters))
        for old in [p for p in self._numbered() if p != path][self._keep - 1 :]:
            shutil.rmtree(old)
        return path

    def save_named(
        self, name: str, arrays: Mapping[str, np.ndarray], counters: Mapping[str, Any]
    ) -> Path:
        """Saves under a name, such as "best", that is never deleted; returns the path.

        The name is a symbolic link that moves from one directory to another
        (`<name>.0`, `<name>.1`), so there is a complete one at every moment. Raises
        ValueError for a name other than small letters and underscores.
        """
        if not re.fullmatch(r"[a-z_]+", name):
            raise ValueError(f"a name has small letters and underscores, got {name!r}")
        link = self.directory / name
        slots = [self.directory / f"{name}.{slot}" for slot in (0, 1)]
        current = link.resolve()
        new, old = slots[::-1] if current.name == slots[0].name else slots
        publish_directory(new, _writer(arrays, counters))
        point_link(link, new)
        shutil.rmtree(old, ignore_errors=True)
        return link

    def newest(self) -> Path | None:
        """The complete checkpoint of the highest number, None if there is none.

        Those that are damaged or not ours are passed over, with a warning.
        """
        for path in self._numbered():
            try:
                read_manifest(path)
            except ConfigError as error:
                logging.warning("skipping a checkpoint: %s", error)
            else:
                return path
        return None

    def load(self, path: str | Path) -> tuple[Arrays, dict[str, Any]]:
        """The arrays and counters saved at `path`, checked against their digests.

        Raises ConfigError, naming the path and the reason, for a checkpoint that is
        incomplete, damaged or not ours.
        """
        path = Path(path).resolve()
        manifest = read_manifest(path)
        arrays = {}
        try:
            with np.load(path / ARRAYS, allow_pickle=False) as archive:
                for name, dtype, shape in manifest["arrays"]:
                    arrays[name] = _restored(archive[name], dtype, shape)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{path}: cannot read {ARRAYS}: {error}") from error
        return arrays, manifest["counters"]

    def _numbered(self) -> list[Path]:
        """Everything that is named like a numbered checkpoint, newest first."""
        found = self.directory.iterdir() if self.directory.is_dir() else ()
        numbered = [p for p in found if re.fullmatch(r"\d{12,}", p.name)]
        return sorted(numbered, key=lambda path: int(path.name), reverse=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """What `counters.json` says, once every digest of the checkpoint is checked.

    Raises ConfigError, naming the path and the reason.
    """
    try:
        text = (path / COUNTERS).read_bytes()
        sentinel = (path / SENTINEL).read_text().strip()
        arrays_digest = _file_digest(path / ARRAYS)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: incomplete or no checkpoint: {error}") from error
    if hashlib.sha256(text).hexdigest() != sentinel:
        raise ConfigError(f"{path}: {COUNTERS} does not match the digest in {SENTINEL}")
    manifest = json.loads(text)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ConfigError(f"{path}: not in the format {FORMAT!r}")
    if manifest["arrays_sha256"] != arrays_digest:
        raise ConfigError(f"{path}: {ARRAYS} does not match its digest in {COUNTERS}")
    return manifest


def _writer(
    arrays: Mapping[str, np.ndarray], counters: Mapping[str, Any]
) -> Callable[[Path], None]:
    """A function that fills a directory with a checkpoint, the sentinel last."""

    def write(path: Path) -> None:
        _write_arrays(path / ARRAYS, arrays)
        text = _manifest_text(arrays, counters, _file_digest(path / ARRAYS))
        (path / COUNTERS).write_bytes(text)
        (path / SENTINEL).write_text(hashlib.sha256(text).hexdigest() + "\n")

    return write


def _manifest_text(
    arrays: Mapping[str, np.ndarray], counters: Mapping[str, Any], digest: str
) -> bytes:
    manifest = {
        "format": FORMAT,
        "counters": dict(counters),
        "arrays": [[k, np.asarray(v).dtype.name, v.shape] for k, v in arrays.items()],
        "arrays_sha256": digest,
    }
    try:
        return json.dumps(manifest, indent=1, default=_plain_number).encode()
    except TypeError as error:
        raise ValueError(f"counters must be JSON: {error}") from error


def _plain_number(value: Any) -> Any:
    """JSON's form of a NumPy scalar; TypeError for anything else."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot write {value!r}")


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """An .npz archive; not `np.savez`, whose argument names are no array names."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, _storable(array), allow_pickle=False)


def _storable(array: np.ndarray) -> np.ndarray:
    """The array, or its bytes if NumPy's file format cannot say what they are.

    Raises ValueError for a dtype that its name does not give back.
    """
    array = np.asarray(array)
    known = not array.dtype.hasobject and array.dtype.names is None
    if not known or array_dtype(array.dtype.name) != array.dtype.newbyteorder("="):
        raise ValueError(f"cannot save an array of dtype {array.dtype}")
    return array_bytes(array) if array.dtype.kind == "V" else array


def _restored(stored: np.ndarray, dtype: str, shape: list[int]) -> np.ndarray:
    if stored.dtype.name == dtype:
        return stored
    return stored.view(array_dtype(dtype)).reshape(shape)


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
