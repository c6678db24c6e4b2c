"""What an Ape-X learner does: train on bundles, send priorities back."""

from __future__ import annotations

import numpy as np

from distrl.agents.apex_memory import batches_channel, priorities_channel
from distrl.agents.learner_loop import LearnerLoop
from distrl.agents.settings import Learning, Replay
from distrl.cluster.messages import Message
from distrl.cluster.proxy_sender import ProxySender, SenderSettings
from distrl.core.nests import map_nest
from distrl.core.records import PriorityUpdate, ReplayBatch
from distrl.core.specs import EnvironmentSpec
from distrl.core.threads import Deadline
from distrl.learners.learning_session import LearningSession
from distrl.lifecycle.task import Task
from distrl.models.learning_graph import LearningModel

_PRIORITY_DELAY_SECS = 0.05  # priorities of several bundles share a message
_MEASURE_SECS = 1.0  # between two measurements of loss and gradients


class ApexLearner(LearnerLoop):
    """The receiver's thread fetches the next bundle while this one is trained on."""

    def __init__(
        self,
        task: Task,
        spec: EnvironmentSpec,
        model: LearningModel,
        learning: Learning,
        replay: Replay,
    ):
        session = LearningSession(model, spec, task.run.seed, learning.num_threads)
        super().__init__(task, spec, model, session, learning)
        self._training = session
        self._batch_size = replay.batch_size
        self._next_measure = Deadline(0.0)

    @property
    def num_snapshots(self) -> int:
        return len(self.task.cluster.memory)

    def open_channels(self) -> None:
        self._batches = self.task.receiver(batches_channel(self._spec), capacity=1)
        settings = SenderSettings(capacity=16, max_delay_secs=_PRIORITY_DELAY_SECS)
        self._priorities: list[ProxySender] = [
            self.task.sender(priorities_channel(), address, settings)
            for address in self.task.addresses("memory")
        ]

    def step(self, timeout: float) -> None:
        with self.task.timer.measure("wait"):
            message = self._batches.get(timeout)
        if message is None:
            return
        bundle: ReplayBatch = message.record
        ids, priorities = [], []
        for first in range(0, message.header.rows, self._batch_size):
            rows = slice(first, first + self._batch_size)
            batch = map_nest(lambda leaf, at=rows: leaf[at], bundle)
            if self.may_train and (found := self._train(batch)) is not None:
                ids.append(batch.id)
                priorities.append(found)
        if priorities:
            self._send_priorities(message, ids, priorities)
        self.now_and_then()

    def _train(self, batch: ReplayBatch) -> np.ndarray | None:
        """The new priorities, None of a step that was undone."""
        measure = self._next_measure.passed
        priorities, metrics = self._training.train(batch, measure)
        self.task.counters.add("trained", priorities.size)
        if measure:
            self._next_measure = Deadline(_MEASURE_SECS)
            self.task.gauges.update(metrics)
        finite = self.is_finite(priorities, batch)
        self.after_step()
        return priorities if finite else None

    def _send_priorities(
        self, message: Message, ids: list[np.ndarray], priorities: list[np.ndarray]
    ) -> None:
        rows = sum(found.size for found in priorities)
        update = PriorityUpdate(
            np.concatenate(ids),
            np.maximum(np.concatenate(priorities), 1e-6),
            np.full(rows, message.header.incarnation, np.int64),
        )
        self.task.hand_over(self._priorities[message.header.task], update, rows)

    def drain(self) -> None:
        self.task.drain(self._batches, "memory", lambda message: None)
