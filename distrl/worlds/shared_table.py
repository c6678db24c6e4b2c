"""Numbers by name that several processes read and write."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Hashable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager

from distrl.core.threads import Deadline

Number = int | float | bool
_CODES = {bool: "q", int: "q", float: "d"}
_SLOT = 16  # bytes: the value, and whether it is there
_LOOK_SECS = 0.001  # between two looks at a lock that another process has


class SharedTable(MutableMapping[Hashable, Number]):
    """A dict of int, float and bool whose keys and types are fixed at the beginning.

        table = SharedTable({"wins": 0, "loss": 0.0})
        with table.locked():
            table["wins"] += 1

    It may be handed to other processes, whatever the start method, and what arrives is
    the same table. A key that was deleted stays away. The lock belongs to a process as
    long as it lives: one that dies leaves it open. `close` gives the memory back; who
    made the table does that last.
    """

    def __init__(self, values: Mapping[Hashable, Number], lock_secs: float = 30.0):
        """`lock_secs` limits every wait for the lock. Raises TypeError for a value that
        is no int, float or bool."""
        kinds = {key: _kind(key, value) for key, value in values.items()}
        file, path = tempfile.mkstemp(prefix="distrl-table-")
        try:
            os.ftruncate(file, max(1, len(kinds)) * _SLOT)
        finally:
            os.close(file)
        self._open(path, kinds, lock_secs, owner=True)
        for key, value in values.items():
            self._write(key, value)

    def _open(
        self, path: str, kinds: Mapping[Hashable, type], lock_secs: float, owner: bool
    ) -> None:
        self._path, self._kinds, self._lock_secs = path, dict(kinds), lock_secs
        self._offsets = {key: n * _SLOT for n, key in enumerate(kinds)}
        self._owner = os.getpid() if owner else None
        self._file = os.open(path, os.O_RDWR)
        self._memory = mmap.mmap(self._file, max(1, len(kinds)) * _SLOT)
        self._own_locks()

    def _own_locks(self) -> None:
        self._process, self._depth = os.getpid(), 0
        self._thread_lock = threading.RLock()

    def __reduce__(self) -> tuple[object, ...]:
        return _attached, (self._path, self._kinds, self._lock_secs)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes anything meanwhile. May be nested; may raise
        TimeoutError, and ValueError behind `close`."""
        if self._memory.closed:
            raise ValueError("the table was closed")
        if self._process != os.getpid():  # a fork has the locks of its parent
            os.close(self._file)
            self._file = os.open(self._path, os.O_RDWR)
            self._own_locks()
        if not self._thread_lock.acquire(timeout=self._lock_secs):
            raise TimeoutError(f"no lock on the table within {self._lock_secs} s")
        try:
            if not self._depth:
                self._lock_file()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._thread_lock.release()

    def _lock_file(self) -> None:
        deadline = Deadline(self._lock_secs)
        pause = threading.Event()
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if deadline.passed:
                    raise TimeoutError(
                        f"no lock on the table within {self._lock_secs} s"
                    ) from None
                pause.wait(_LOOK_SECS)

    def __getitem__(self, key: Hashable) -> Number:
        value, there = self._read(key)
        if not there:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Hashable, value: Number) -> None:
        """Raises KeyError for a key that is not there, TypeError for another type (an
        int for a float is taken)."""
        with self.locked():
            if key not in self:
                raise KeyError(key)
            kind = _kind(key, value)
            if kind is not self._kinds[key] and (kind, self._kinds[key]) != (
                int,
                float,
            ):
                name = self._kinds[key].__name__
                raise TypeError(f"{key!r} is of type {name}, got {value!r}")
            self._write(key, value)

    def __delitem__(self, key: Hashable) -> None:
        with self.locked():
            if key not in self:
                raise KeyError(key)
            struct.pack_into("=q", self._memory, self._offsets[key] + 8, 0)

    def __contains__(self, key: object) -> bool:
        return key in self._offsets and self._read(key)[1]

    def __iter__(self) -> Iterator[Hashable]:
        return (key for key in self._offsets if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _read(self, key: Hashable) -> tuple[Number, bool]:
        kind, code = self._kinds[key], _CODES[self._kinds[key]]
        value, there = struct.unpack_from(f"={code}q", self._memory, self._offsets[key])
        return kind(value), bool(there)

    def _write(self, key: Hashable, value: Number) -> None:
        kind, code = self._kinds[key], _CODES[self._kinds[key]]
        struct.pack_into(f"={code}q", self._memory, self._offsets[key], kind(value), 1)

    def close(self) -> None:
        """May be called again."""
        if self._memory.closed:
            return
        self._memory.close()
        os.close(self._file)
        if self._owner == os.getpid():
            os.unlink(self._path)

    def __enter__(self) -> SharedTable:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _attached(
    path: str, kinds: Mapping[Hashable, type], lock_secs: float
) -> SharedTable:
    table = SharedTable.__new__(SharedTable)
    table._open(path, kinds, lock_secs, owner=False)
    return table


def _kind(key: Hashable, value: object) -> type:
    if type(value) not in _CODES:
        raise TypeError(f"{key!r}: expected an int, float or bool, got {value!r}")
    return type(value)
