"""A memory's side of checkpoints: what it holds, saved and found again."""

from __future__ import annotations

import logging
from typing import Protocol

import numpy as np

from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.snapshots import SnapshotWriter, load_newest, load_number
from distrl.lifecycle.task import Task
from distrl.metrics.machine import available_bytes

log = logging.getLogger(__name__)

_KEPT = 5


class Kept(Protocol):
    """What a memory saves."""

    def state(self) -> dict[str, np.ndarray]: ...

    def restore(self, state: dict[str, np.ndarray]) -> None: ...

    @property
    def num_bytes(self) -> int: ...


class MemorySnapshots:
    """Saves a memory's state, on its own disk, under the id of each checkpoint of the
    learner, as far as the time allows; the ids that are whole are told with the beats.

        snapshots = MemorySnapshots(task, memory, wanted=True)
        snapshots.restore()
        snapshots.look()       # now and then
        snapshots.finish()     # once the memory has drained all its channels
        snapshots.close()

    A memory that is started again goes on from its newest whole snapshot, one of a
    resumed run from the one that belongs to the learner's checkpoint. Without one it
    begins empty.
    """

    def __init__(self, task: Task, memory: Kept, wanted: bool):
        self._task, self._memory, self._wanted = task, memory, wanted
        self._store = CheckpointStore(task.run_dir / f"memory-{task.index}", _KEPT)
        self._writer = SnapshotWriter(self._store, available_bytes=available_bytes)
        self._offered = task.view.checkpoint

    def restore(self) -> None:
        """Looks for a snapshot where this memory has lived before."""
        task, restored = self._task, self._task.view.restored
        if task.restart:
            found = load_newest(self._store, self._memory.restore)
        elif restored:
            found = load_number(self._store, restored, self._memory.restore)
            if found is not None:  # what came later is void, for who restarts, too
                self._store.drop_above(restored)
        else:
            return
        if found is None:
            log.warning("%s begins empty: no snapshot in %s", task, self._store)
        else:
            log.info("%s goes on from a snapshot of %d rows", task, found["rows"])

    def look(self) -> None:
        """Saves a snapshot when the learner has begun another checkpoint."""
        wanted = self._task.view.checkpoint
        if self._wanted and wanted > self._offered:
            state, size = self._memory.state, self._memory.num_bytes
            if self._writer.offer(wanted, state, self._counters(), size):
                self._offered = wanted
        self._tell()

    def finish(self) -> None:
        """The last one of a run, under the id that everybody knows by himself."""
        if self._wanted:
            identity = self._task.view.checkpoint + 1
            limit = self._task.timeouts.shutdown_secs
            state, size = self._memory.state, self._memory.num_bytes
            self._writer.finish(identity, state, self._counters(), limit, size)
        self._tell()

    def _tell(self) -> None:
        if self._writer.written is not None:
            self._task.gauges["snapshot"] = self._writer.written

    def _counters(self) -> dict[str, int]:
        return {"rows": int(self._task.gauges.get("memory_size", 0))}

    def close(self) -> None:
        """Ends the thread."""
        self._writer.close(5.0)
