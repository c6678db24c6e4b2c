"""What a memory of IMPALA does: make batches of one size of unrolls of many actors."""

from __future__ import annotations

import numpy as np

from distrl.agents.settings import UnrollBatches
from distrl.cluster.messages import ChannelSpec, Message
from distrl.cluster.proxy_sender import SenderSettings
from distrl.core.nests import concatenate
from distrl.core.trajectories import Trajectories
from distrl.lifecycle.task import Task
from distrl.memories.trajectory_memory import TrajectoryMemory


def unrolls_channel(spec: Trajectories) -> ChannelSpec:
    """Actors → memory j, hosted by memory j. Small: what waits grows stale."""
    return ChannelSpec("experience", spec, capacity=2)


def batches_channel(spec: Trajectories) -> ChannelSpec:
    """Memories → learner k, hosted by learner k."""
    return ChannelSpec("batches", spec, capacity=1)


class ImpalaMemory:
    """One memory task. Nothing here blocks. While enough batches wait for the learner,
    it takes in no more, so actors wait instead of growing stale."""

    def __init__(
        self,
        task: Task,
        spec: Trajectories,
        memory: TrajectoryMemory,
        batches: UnrollBatches,
    ):
        self._task, self._memory = task, memory
        self._bundle = batches.batches_per_message
        self._max_waiting = batches.max_waiting * self._bundle
        self._experience = task.receiver(unrolls_channel(spec), capacity=1)
        self._batches = task.sender(
            batches_channel(spec),
            task.address("learner", 0),
            SenderSettings(capacity=1, max_message_bytes=0),
        )
        self._ready: Trajectories | None = None  # a message that waits for room

    def state(self) -> dict[str, np.ndarray]:
        """What a snapshot holds: copies."""
        return self._memory.state()

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Raises ValueError for what does not fit; nothing changes then."""
        self._memory.restore(state)
        self._task.gauges["memory_size"] = self._memory.stored

    @property
    def num_bytes(self) -> int:
        """Of the largest snapshot, about."""
        return self._memory.num_bytes

    def serve(self) -> bool:
        stored = self._memory.available < self._max_waiting and self._take()
        return self._send() or stored

    def _take(self) -> bool:
        message = self._experience.get()
        if message is None:
            return False
        self.store(message)
        return True

    def store(self, message: Message) -> None:
        self._memory.insert(message.record)
        self._task.counters.add("inserted", message.header.rows)
        self._task.gauges["memory_size"] = self._memory.stored

    def _send(self) -> bool:
        if self._ready is None and self._memory.available >= self._bundle:
            batches = [self._memory.sample() for _ in range(self._bundle)]
            self._ready = concatenate(batches)
        if self._ready is None:
            return False
        rows = len(self._ready.first_is_last)
        sent = self._batches.put(self._ready, rows, timeout=0.0)
        if sent:
            self._task.counters.add("sampled", rows)
            self._ready = None
        return sent

    def open(self) -> None:
        """Nothing is held back but by `max_waiting`, which `finish` does not ask."""

    def finish(self) -> None:
        self._task.drain(self._experience, "actor", self.store, self._send)
        if self._ready is not None:
            self._hand_over(self._ready)
        while self._memory.can_sample:
            self._hand_over(self._memory.sample())
        remainder = self._memory.finish()
        if remainder is not None:
            self._hand_over(remainder)
        self._task.end_senders()

    def _hand_over(self, batch: Trajectories) -> None:
        """Waits for room, for a while."""
        rows = len(batch.first_is_last)
        self._task.counters.add("sampled", rows)
        self._task.hand_over(self._batches, batch, rows)
