"""Checkpoints of arrays and counters in a directory, the newest few and named ones."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from distrl.checkpoints.array_archive import (
    Pause,
    file_digest,
    read_arrays,
    write_arrays,
)
from distrl.checkpoints.directories import (
    point_link,
    publish_directory,
    remove_directory,
    remove_leftovers,
)
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

    def __str__(self) -> str:
        return str(self.directory)

    def path(self, number: int) -> Path:
        """Where the checkpoint of this number is, if there is one.

        Raises ValueError for a negative number.
        """
        if number < 0:
            raise ValueError(f"number must be at least 0, got {number}")
        return self.directory / f"{number:012d}"

    def numbers(self) -> list[int]:
        """The numbers of all checkpoints, newest first; cheap, so damaged ones too."""
        found = self.directory.iterdir() if self.directory.is_dir() else ()
        names = [p.name for p in found if re.fullmatch(r"\d{12,}", p.name)]
        return sorted(map(int, names), reverse=True)

    def is_whole(self, number: int) -> bool:
        """Whether this checkpoint is there and undamaged; says so if it is not.

        Reads all of it.
        """
        try:
            read_manifest(self.path(number))
        except ConfigError as error:
            logging.warning("skipping a checkpoint: %s", error)
            return False
        return True

    def save(
        self,
        number: int,
        arrays: Mapping[str, np.ndarray],
        counters: Mapping[str, Any],
        protected: Collection[int] = (),
        pause: Pause | None = None,
    ) -> Path:
        """Saves, then deletes the oldest numbers beyond `keep`; returns the path.

        Of these the `protected` ones stay. A checkpoint of the same number is replaced.
        `pause`, which may sleep, is called after every block (4 MiB) with the seconds
        that it took; what it raises ends the save. Raises ValueError for a negative
        number and for what cannot be written: objects in arrays, counters that are
        not JSON; OSError when the disk is full, or not ours. Nothing is left then.
        """
        path = self.path(number)
        remove_leftovers(self.directory)
        publish_directory(path, _writer(arrays, counters, pause))
        # Higher numbers are of a run that has gone back: they are worth least.
        others = [n for n in self.numbers() if n < number]
        others += [n for n in self.numbers() if n > number]
        self._delete([n for n in others[self._keep - 1 :] if n not in protected])
        return path

    def drop_above(self, number: int) -> None:
        """Deletes the checkpoints of higher numbers, which a run that went back to an
        earlier one has left behind."""
        self._delete([n for n in self.numbers() if n > number])

    def _delete(self, numbers: list[int]) -> None:
        """Says what cannot be deleted: what has been saved is saved all the same."""
        for number in numbers:
            try:
                remove_directory(self.path(number))
            except OSError as error:
                logging.error("cannot delete a checkpoint: %s", error)

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
        publish_directory(new, _writer(arrays, counters, None))
        point_link(link, new)
        shutil.rmtree(old, ignore_errors=True)
        return link

    def newest(self) -> Path | None:
        """The complete checkpoint of the highest number, None if there is none.

        Those that are damaged or not ours are passed over, with a warning.
        """
        return next((self.path(n) for n in self.numbers() if self.is_whole(n)), None)

    def load(self, path: str | Path) -> tuple[Arrays, dict[str, Any]]:
        """The arrays and counters saved at `path`, checked against their digests.

        Raises ConfigError, naming the path and the reason, for a checkpoint that is
        incomplete, damaged or not ours.
        """
        path = Path(path).resolve()
        manifest = read_manifest(path)
        try:
            arrays = read_arrays(path / ARRAYS, manifest["arrays"])
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{path}: cannot read {ARRAYS}: {error}") from error
        return arrays, manifest["counters"]


def read_manifest(path: Path) -> dict[str, Any]:
    """What `counters.json` says, once every digest of the checkpoint is checked.

    Raises ConfigError, naming the path and the reason.
    """
    try:
        text = (path / COUNTERS).read_bytes()
        sentinel = (path / SENTINEL).read_text().strip()
        arrays_digest = file_digest(path / ARRAYS)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: incomplete or no checkpoint: {error}") from error
    if hashlib.sha256(text).hexdigest() != sentinel:
        raise ConfigError(f"{path}: {COUNTERS} does not match the digest in {SENTINEL}")
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {COUNTERS} is no JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ConfigError(f"{path}: not in the format {FORMAT!r}")
    if manifest["arrays_sha256"] != arrays_digest:
        raise ConfigError(f"{path}: {ARRAYS} does not match its digest in {COUNTERS}")
    return manifest


def _writer(
    arrays: Mapping[str, np.ndarray], counters: Mapping[str, Any], pause: Pause | None
) -> Callable[[Path], None]:
    """A function that fills a directory with a checkpoint, the sentinel last."""

    def write(path: Path) -> None:
        digest = write_arrays(path / ARRAYS, arrays, pause)
        text = _manifest_text(arrays, counters, digest)
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
