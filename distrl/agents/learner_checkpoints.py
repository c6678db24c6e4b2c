"""The checkpoints of a learner, and which snapshots of memories belong to them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from distrl.agents.settings import Learning
from distrl.checkpoints.checkpoint_store import Arrays, CheckpointStore
from distrl.checkpoints.manifest import Manifest
from distrl.core.errors import ConfigError
from distrl.core.threads import Deadline
from distrl.lifecycle.task import Task

log = logging.getLogger(__name__)

_PATIENCE_SECS = 600.0  # with memories that are asked for a snapshot


class Restored(NamedTuple):
    """What a learner goes on from."""

    path: Path
    arrays: Arrays
    counters: dict[str, Any]
    whole: bool  # memories go on from their snapshots of the same id


class LearnerCheckpoints:
    """Numbered by learner steps. Each has an id; the memories learn of it from the run
    state, and save what they hold under the same one. The manifest says which ids are
    whole: with a snapshot of each of `num_memories`.

    A learner that is started again within its run goes on from the newest checkpoint; a
    run that is resumed from the newest whole one, and only without any from the newest.
    """

    def __init__(self, task: Task, learning: Learning, num_memories: int):
        directory = task.run_dir / "checkpoints"
        self.store = CheckpointStore(directory, learning.checkpoints_kept)
        self._task = task
        self._num_memories = num_memories if learning.memory_snapshots else 0
        self._manifest = Manifest(directory / "manifest.json")
        self._id = 0
        self._patience = Deadline(0.0)
        self._reported: Mapping[str, int] = {}
        self._run_id_file = task.run_dir / "run_id"

    # How a life begins.

    @property
    def _lived_before(self) -> bool:
        return self._task.resume or self._task.restart > 0

    def restored(self) -> Restored | None:
        """What to go on from; None for a new run, and where nothing has been saved."""
        if not self._lived_before:
            return None
        whole = None if self._task.restart else self._newest_whole()
        path = self.store.newest() if whole is None else self.store.path(whole)
        if path is None:
            log.warning("no checkpoint in %s: beginning anew", self.store.directory)
            return None
        restored = Restored(path, *self.store.load(path), whole is not None)
        self.store.drop_above(restored.counters["learner_steps"])
        return restored

    def _newest_whole(self) -> int | None:
        """The number of the learner's part."""
        try:
            entry = self._manifest.newest_whole(self.store)
        except ConfigError as error:
            log.warning("no manifest: %s", error)
            return None
        return None if entry is None else entry.learner

    def words(self, restored: Restored | None) -> dict[str, Any]:
        """What the learner says to ps 0 from its first beat on. Mints the id of a new
        run. Raises ConfigError when it cannot be kept."""
        words: dict[str, Any] = {"run_id": self._run_id()}
        if restored is None:
            return words
        counters = restored.counters
        self._id = counters["checkpoint_id"]
        resumes = not self._task.restart
        if counters["run"] is not None:
            words |= {"recall": counters["run"], "resumes": resumes}
        if restored.whole:
            words["restored"] = self._id
        return words

    def _run_id(self) -> str:
        try:
            if self._lived_before and self._run_id_file.exists():
                return self._run_id_file.read_text().strip()
            run_id = secrets.token_hex(7)
            self._run_id_file.write_text(run_id + "\n")
        except OSError as error:
            raise ConfigError(f"--run_dir: {self._run_id_file}: {error}") from error
        return run_id

    # While it lives.

    def save(
        self,
        learner_steps: int,
        arrays: Arrays,
        counters: dict[str, Any],
        last: bool = False,
    ) -> None:
        """Saves a checkpoint and asks the memories to join; the `last` one of a run has
        the id that they know by themselves. Raises OSError."""
        known = self._task.view.checkpoint
        kept = self._manifest.protected()  # sets a damaged manifest aside
        self._reported = {}  # what the disk has refused, it may take now
        self.look()
        with_memories = last or self._memories_are_ready()
        if with_memories:
            self._id = (known if last else max(self._id, known)) + 1
        counters |= {"checkpoint_id": self._id, "run": self._task.heartbeat.dump}
        self.store.save(learner_steps, arrays, counters, protected=kept)
        if not with_memories:
            return
        self._manifest.begin(self._id, learner_steps, self._num_memories)
        self._patience = Deadline(_PATIENCE_SECS)
        if last:
            self._reported = {}
            self.look()
        else:
            self._task.heartbeat.say(checkpoint=self._id)

    def _memories_are_ready(self) -> bool:
        """Whether all have saved what they were asked for, or will not any more."""
        return self._manifest.pending() is None or self._patience.passed

    def look(self) -> None:
        """Notes in the manifest what memories have saved."""
        reported = self._task.view.snapshots
        if reported == self._reported:
            return
        self._reported = reported
        try:
            for name, snapshot in reported.items():
                self._manifest.complete(snapshot, int(name.split("/")[1]))
        except OSError as error:
            log.error("the manifest cannot be written: %s", error)
