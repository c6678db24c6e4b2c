"""Which checkpoint of the learner and which snapshots of memories belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.directories import replace_file
from distrl.core.errors import ConfigError

FORMAT = "distrl manifest 1"


class Entry(NamedTuple):
    """One checkpoint of a run: of the learner and, under its id, of memories."""

    checkpoint_id: int
    learner: int  # number of the learner's checkpoint
    num_memories: int  # expected; 0: none has a snapshot
    memories: tuple[int, ...]  # indices of those whose snapshot is whole

    @property
    def whole(self) -> bool:
        return len(self.memories) == self.num_memories


class Manifest:
    """The newest few checkpoints of a run, and always its newest whole one.

        store.save(steps, arrays, counters, protected=manifest.protected())
        manifest.begin(checkpoint_id, steps, num_memories=2)
        manifest.complete(checkpoint_id, 0)
        manifest.complete(checkpoint_id, 1)
        entry = manifest.newest_whole(store)

    The file, JSON, is replaced in one rename; it is read once, when it is first
    needed. A damaged or foreign one is refused by what reads (ConfigError, which names
    path and reason), and set aside, with a word in the log, by what writes. One process
    writes.
    """

    def __init__(self, path: str | Path, keep: int = 5):
        """Touches nothing on disk. Raises ValueError unless `keep` is at least 1."""
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.path = Path(path)
        self._keep = keep
        self._read: list[Entry] | None = None

    def entries(self) -> list[Entry]:
        """All of them, newest first. Raises ConfigError for a file that is not ours."""
        if self._read is None:
            self._read = _read(self.path)
        return list(self._read)

    def begin(self, checkpoint_id: int, learner: int, num_memories: int) -> None:
        """Notes that the learner has saved the checkpoint of this number.

        Entries of the same and of higher ids go: they are of a run that has gone back.
        Raises ValueError for a negative number, OSError when the file cannot be
        written; nothing changes then.
        """
        if min(checkpoint_id, learner, num_memories) < 0:
            raise ValueError(
                f"numbers are >= 0, got id {checkpoint_id}, learner {learner}, "
                f"memories {num_memories}"
            )
        older = [e for e in self._writable() if e.checkpoint_id < checkpoint_id]
        new = Entry(checkpoint_id, learner, num_memories, ())
        self._write([new, *older])

    def complete(self, checkpoint_id: int, memory_index: int) -> bool:
        """Notes that a memory's snapshot of this id is whole; whether it knows the id.

        Saying so again does no harm and costs nothing. Raises ValueError for an index
        that no memory has, OSError as `begin` does.
        """
        entries = self._writable()
        ids = [entry.checkpoint_id for entry in entries]
        if checkpoint_id not in ids:
            return False
        position = ids.index(checkpoint_id)
        entry = entries[position]
        if not 0 <= memory_index < entry.num_memories:
            raise ValueError(f"memory {memory_index} of {entry.num_memories}")
        if memory_index not in entry.memories:
            memories = tuple(sorted((*entry.memories, memory_index)))
            entries[position] = entry._replace(memories=memories)
            self._write(entries)
        return True

    def newest_whole(self, store: CheckpointStore | None = None) -> Entry | None:
        """The newest one that all memories have completed, None if there is none.

        With the learner's `store` also its checkpoint must be there, and undamaged.
        Raises ConfigError as `entries` does.
        """
        for entry in self.entries():
            if entry.whole and (store is None or store.is_whole(entry.learner)):
                return entry
        return None

    def pending(self) -> Entry | None:
        """The newest one, if memories have still to complete it.

        Raises ConfigError as `entries` does.
        """
        newest = next(iter(self.entries()), None)
        return None if newest is None or newest.whole else newest

    def protected(self) -> set[int]:
        """Numbers of checkpoints of the learner that must not be deleted: those that
        are, or may become, part of a whole one."""
        return {entry.learner for entry in self._writable()}

    def _writable(self) -> list[Entry]:
        try:
            return self.entries()
        except ConfigError as error:
            aside = self.path.with_name(f"{self.path.name}.damaged")
            logging.error(
                "beginning a new manifest, the old one is %s: %s", aside, error
            )
            self.path.replace(aside)
            self._read = []
            return []

    def _write(self, entries: list[Entry]) -> None:
        """Entries are newest first; those that are too old go."""
        kept = entries[: self._keep]
        if not any(entry.whole for entry in kept):
            kept += [entry for entry in entries[self._keep :] if entry.whole][:1]
        content = {"format": FORMAT, "entries": [entry._asdict() for entry in kept]}
        replace_file(self.path, json.dumps(content, indent=1).encode())
        self._read = kept


def _read(path: Path) -> list[Entry]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot read the manifest: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"{path}: not in the format {FORMAT!r}")
    try:
        entries = [_entry(**fields) for fields in content["entries"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: impossible entries: {error!r}") from error
    return sorted(entries, key=lambda entry: -entry.checkpoint_id)


def _entry(memories: Any, **numbers: Any) -> Entry:
    """Raises TypeError or ValueError for what is no entry."""
    entry = Entry(**numbers, memories=tuple(memories))
    values = [*entry[:3], *entry.memories]
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"numbers are integers >= 0, got {entry}")
    if not set(entry.memories) <= set(range(entry.num_memories)):
        raise ValueError(f"more memories than expected: {entry}")
    return entry
