"""Directories and files that appear on disk whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within it every OSError names a path: this one, where the disk was full while a
    file was written, for then the error itself names none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def publish_directory(path: Path, write: Callable[[Path], None]) -> None:
    """Makes `path` what `write(temporary directory)` fills, in one rename.

    A process killed on the way leaves `path` as it was, and leftovers that the next
    call, or `remove_leftovers`, removes. What stood at `path` is replaced; between two
    renames there is then a moment without it. One writer at a time. An OSError names a
    path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        with naming(path):
            write(new)
            _sync_tree(new)
            _put_in_place(new, path)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    with naming(path):
        sync_path(path.parent)


def _put_in_place(new: Path, path: Path) -> None:
    """`new` becomes `path`; when that fails, the old one is back."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if not path.exists():
        os.rename(new, path)
        return
    os.rename(path, old)
    try:
        os.rename(new, path)
    except OSError:
        os.rename(old, path)
        raise
    shutil.rmtree(old)


def remove_directory(path: Path) -> None:
    """Removes a directory in one rename; what is left if the process is killed then,
    `remove_leftovers` removes."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    os.rename(path, old)
    shutil.rmtree(old)


def replace_file(path: Path, data: bytes) -> None:
    """Makes `data` what the file `path` holds, in one rename.

    Until then, and when OSError is raised, which names a path, it is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with naming(path):
        try:
            new.write_bytes(data)
            sync_path(new)
            os.replace(new, path)
        finally:
            _remove_file(new)
        sync_path(path.parent)


def _remove_file(path: Path) -> None:
    """A disk that refuses that has refused something before, which is raised."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def remove_leftovers(parent: Path) -> None:
    """Removes what killed calls of `publish_directory` left in `parent`."""
    for leftover in [*parent.glob(".*.new"), *parent.glob(".*.old")]:
        shutil.rmtree(leftover, ignore_errors=True)


def point_link(link: Path, target: Path) -> None:
    """Makes `link` a symbolic link to its neighbour `target`, in one rename."""
    new = link.with_name(f".{link.name}.new")
    with naming(link):
        new.unlink(missing_ok=True)
        new.symlink_to(target.name)
        os.replace(new, link)
        sync_path(link.parent)


def _sync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            sync_path(Path(folder, name))
        sync_path(Path(folder))


def sync_path(path: Path) -> None:
    """Waits until a file's bytes, or a directory's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
