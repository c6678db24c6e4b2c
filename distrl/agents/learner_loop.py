"""The learner's side of a run, whatever it trains on: publish, checkpoint, finish."""

from __future__ import annotations

import abc
import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from distrl.agents.actor_learner_agent import parameter_store
from distrl.agents.finiteness_guard import FinitenessGuard
from distrl.agents.learner_checkpoints import LearnerCheckpoints, Restored
from distrl.agents.settings import Learning
from distrl.checkpoints.export import export_saved_model
from distrl.checkpoints.parameters import (
    ParameterSpec,
    flatten_parameters,
    unflatten_parameters,
)
from distrl.cluster.messages import Producer
from distrl.cluster.parameter_threads import ParameterPublisher
from distrl.core.errors import ConfigError, PeerUnreachable
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.core.threads import Deadline
from distrl.lifecycle.ledger import write_ledger
from distrl.lifecycle.task import Task
from distrl.lifecycle.view import View

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

    def restore(self, state: Mapping[str, np.ndarray], learner_steps: int) -> None:
        """Goes on from a `state()`, of which there may be more. Raises ValueError."""


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
        self._checkpoints = LearnerCheckpoints(task, learning, self.num_snapshots)
        self._guard = FinitenessGuard(task, session, learning, self._checkpoints.store)
        self._next_checkpoint = Deadline(learning.checkpoint_period_secs)
        self._publish: Publish | None = None  # before the run runs
        self._version = self._best_version = -1
        self._best_return = -np.inf
        self._servers: list[Producer] = []  # the ps that have what was published
        self._view: View | None = None  # the one in which they were seen
        self._started = time.monotonic()
        self._closing = contextlib.ExitStack()  # of the publication

    @property
    def num_snapshots(self) -> int:
        """How many memories keep what they hold along with each checkpoint."""
        return 0

    def join(self, described: dict[str, str]) -> None:
        """Brings the run its id, opens the channels; once every ps is there, publishes
        the first version. Goes on from a checkpoint where the task has lived before."""
        restored = self._checkpoints.restored()
        if restored is not None:
            self._restore(restored)
        self.task.join(described, **self._checkpoints.words(restored))
        self.store = parameter_store(self.task)
        self._best_store = parameter_store(self.task, BEST)
        self.open_channels()
        self.task.wait_until_running()
        if self.task.view.stopping:
            return
        self._version = max(self._version, self.store.version())
        self._publish = self.open_publication()
        self._servers_changed()
        self.publish()

    def _restore(self, restored: Restored) -> None:
        counters = restored.counters
        self.restore(restored.arrays, counters["learner_steps"])
        self.task.counters.add("learner_steps", counters["learner_steps"])
        self._version = counters["parameter_version"]
        log.info("restored %s at step %d", restored.path, counters["learner_steps"])

    def restore(self, state: Mapping[str, np.ndarray], learner_steps: int) -> None:
        """Goes on from what `state` has given. Raises ValueError for another model."""
        self.session.restore(state, learner_steps)

    def look_after_servers(self) -> None:
        """Publishes again where a ps has been started again, which makes it blank."""
        if self._publish is not None and self._servers_changed():
            log.warning("a ps was started again: publishing once more")
            self.publish()

    def _servers_changed(self) -> bool:
        view = self.task.view
        if view is self._view:
            return False
        self._view, before = view, self._servers
        self._servers = [p for p in view.producers("ps")]
        return self._servers != before

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
        publisher = ParameterPublisher(
            self.store, self.task.heartbeat.check, self.task.patience_secs
        )
        self._closing.callback(publisher.stop, self.task.timeouts.shutdown_secs)
        return publisher.publish

    def publish(self) -> None:
        """Hands the parameters of this moment on as a new version. Raises Diverged, or
        hands on older ones, when they are not finite."""
        if self._publish is None:
            return
        parameters = self._guard.finite_parameters()
        self._version += 1
        self._publish(self._version, flatten_parameters(parameters))
        self.task.counters.add("publishes")

    def is_finite(self, values: Sequence[float] | np.ndarray, batch: Nest) -> bool:
        """Whether a learner step on `batch` went well; otherwise it has been undone, or
        Diverged is raised, as `Learning.if_not_finite` says."""
        return self._guard.check(values, batch)

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
        self._checkpoints.look()
        if self._next_checkpoint.passed:
            self.save()
            self._next_checkpoint = Deadline(self._learning.checkpoint_period_secs)

    def save(self, last: bool = False) -> None:
        """Writes a checkpoint, and the best parameters when there are better ones.

        A disk that does not take it is reported; training goes on.
        """
        self.task.heartbeat.check()  # a learner that was replaced writes nothing
        self._guard.finite_parameters()
        try:
            steps = self.session.learner_steps
            self._checkpoints.save(steps, self.state(), self._counters(), last)
            self._save_best()
        except OSError as error:
            log.error("no checkpoint at step %d: %s", self.session.learner_steps, error)

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds, by name."""
        return self.session.state()

    def _counters(self) -> dict[str, Any]:
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
        try:
            found = self._best_store.read()
        except PeerUnreachable as error:
            log.warning("the best parameters are left for later: %s", error)
            return
        if found is None or found[0] != view.best_version:
            return
        arrays = unflatten_parameters(found[1], self.session.parameter_specs)
        counters = self._counters() | {
            "parameter_version": found[0],
            "evaluation_return": view.best_return,
        }
        self._checkpoints.store.save_named(BEST, self.session.named(arrays), counters)
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
        number = task.heartbeat.say()
        task.heartbeat.wait_for(
            lambda: task.heartbeat.keeps(number), task.timeouts.shutdown_secs
        )
        self.save(last=True)
        self._export()
        log.info("ledger: %s", json.dumps(task.view.totals))
        write_ledger(task.run_dir / "summary.json", task.view, self._started)

    def _export(self) -> None:
        parameters = self.session.named(self.session.parameters())
        try:
            export_saved_model(
                self._model, self._spec, parameters, self.task.run_dir / "export"
            )
        except (OSError, ConfigError) as error:
            log.error("no export: %s", error)
