"""The learner's side of a run, whatever it trains on: publish, checkpoint, finish."""

from __future__ import annotations

import abc
import contextlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from distrl.agents.actor_learner_agent import parameter_store
from distrl.agents.settings import Learning
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.export import export_saved_model
from distrl.checkpoints.parameters import (
    ParameterSpec,
    flatten_parameters,
    unflatten_parameters,
)
from distrl.cluster.parameter_threads import ParameterPublisher
from distrl.core.specs import EnvironmentSpec
from distrl.core.threads import Deadline
from distrl.lifecycle.ledger import write_ledger
from distrl.lifecycle.task import Task

log = logging.getLogger(__name__)

BEST = "best"


#: Takes a version and its parameters as they travel, uint8 bytes.
Publish = Callable[[int, np.ndarray], None]


class TrainedSession(Protocol):
    """What is published, saved and exported of whatever trains."""

    learner_steps: int
    parameter_specs: list[ParameterSpec]

    def parameters(self) -> list[np.ndarray]:
        """What acting needs, in the order of `parameter_specs`."""

    def named(self, parameters: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Parameters in the order of `parameter_specs`, by their names."""

    def state(self) -> dict[str, np.ndarray]:
        """Every variable by its name."""


class LearnerLoop(abc.ABC):
    """One learner task. A subclass says what a step and the end of its channels are."""

    def __init__(
        self,
        task: Task,
        spec: EnvironmentSpec,
        model: Any,
        session: TrainedSession,
        learning: Learning,
    ):
        self.task, self._spec, self._model = task, spec, model
        self._learning = learning
        self.session = session
        self._checkpoints = CheckpointStore(
            task.run_dir / "checkpoints", learning.checkpoints_kept
        )
        self._next_checkpoint = Deadline(learning.checkpoint_period_secs)
        self._publish: Publish | None = None  # before the run runs
        self._version = self._best_version = -1
        self._best_return = -np.inf
        self._started = time.time()
        self._closing = contextlib.ExitStack()  # of the publication

    def join(self, described: dict[str, str]) -> None:
        """Brings the run its id, opens the channels; once every ps is there, publishes
        the first version."""
        self.task.join(described, run_id=secrets.token_hex(7))
        self.store = parameter_store(self.task)
        self.open_channels()
        self.task.wait_until_running()
        if self.task.view.stopping:
            return
        self._version = self.store.version()
        self._publish = self.open_publication()
        self._best_store = parameter_store(self.task, BEST)
        self.publish()

    @abc.abstractmethod
    def open_channels(self) -> None:
        """Opens what this learner owns, and its senders."""

    @abc.abstractmethod
    def step(self, timeout: float) -> None:
        """Trains on what is there; waits at most `timeout` s for it."""

    @abc.abstractmethod
    def drain(self) -> None:
        """Reads what memories still send, up to their END."""

    def open_publication(self) -> Publish:
        """What takes each new version; here a thread that writes the newest to the
        ps."""
        publisher = ParameterPublisher(self.store, self.task.heartbeat.check)
        self._closing.callback(publisher.stop, self.task.timeouts.shutdown_secs)
        return publisher.publish

    def publish(self) -> None:
        """Hands the parameters of this moment on as a new version."""
        if self._publish is None:
            return
        self._version += 1
        self._publish(self._version, flatten_parameters(self.session.parameters()))
        self.task.counters.add("publishes")

    @property
    def may_train(self) -> bool:
        """Whether `max_learner_steps` allows another learner step."""
        limit = self.task.run.stop.max_learner_steps
        return limit is None or self.session.learner_steps < limit

    def after_step(self) -> None:
        """Bookkeeping behind every learner step."""
        self.task.counters.add("learner_steps")
        if self.session.learner_steps % self._learning.publish_period == 0:
            self.publish()

    def now_and_then(self) -> None:
        """What is due between two bundles."""
        if self._next_checkpoint.passed:
            self.save()
            self._next_checkpoint = Deadline(self._learning.checkpoint_period_secs)

    def save(self) -> None:
        """Writes a checkpoint, and the best parameters when there are better ones.

        A disk that does not take it is reported; training goes on.
        """
        self.task.heartbeat.check()  # a learner that was replaced writes nothing
        try:
            self._checkpoints.save(
                self.session.learner_steps, self.state(), self._counters()
            )
            self._save_best()
        except OSError as error:
            log.error("no checkpoint at step %d: %s", self.session.learner_steps, error)

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds, by name."""
        return self.session.state()

    def _counters(self) -> dict[str, float | str]:
        totals = self.task.view.totals
        return {
            "learner_steps": self.session.learner_steps,
            "env_steps": totals.get("env_steps", 0),
            "episodes": totals.get("episodes", 0),
            "parameter_version": self._version,
            "run_id": self.task.view.run_id,
        }

    def _save_best(self) -> None:
        """Actor 0 leaves the best parameters that it has evaluated on the ps."""
        view = self.task.view
        if view.best_version is None or view.best_version == self._best_version:
            return
        found = self._best_store.read()
        if found is None or view.best_return < self._best_return:
            return
        arrays = unflatten_parameters(found[1], self.session.parameter_specs)
        counters = self._counters() | {
            "parameter_version": found[0],
            "evaluation_return": view.best_return,
        }
        self._checkpoints.save_named(BEST, self.session.named(arrays), counters)
        self._best_version, self._best_return = found[0], view.best_return

    def finish(self) -> None:
        """The learner's farewell, up to `leave`."""
        task = self.task
        self.drain()
        self.publish()
        self._closing.close()
        task.end_senders()
        task.heartbeat.wait_for(
            lambda: task.view.all_gone("actor") and task.view.all_gone("memory"),
            task.timeouts.shutdown_secs,
        )
        self.save()
        self._export()
        number = task.heartbeat.say()
        task.heartbeat.wait_for(
            lambda: task.heartbeat.knows(number), task.timeouts.shutdown_secs
        )
        write_ledger(task.run_dir / "summary.json", task.view, self._started)
        log.info("ledger: %s", json.dumps(task.view.totals))

    def _export(self) -> None:
        parameters = self.session.named(self.session.parameters())
        try:
            export_saved_model(
                self._model, self._spec, parameters, self.task.run_dir / "export"
            )
        except OSError as error:
            log.error("no export: %s", error)
