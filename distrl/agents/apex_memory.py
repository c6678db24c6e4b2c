"""What an Ape-X memory does: take in, hand out, correct priorities."""

from __future__ import annotations

import numpy as np

from distrl.agents.settings import Replay
from distrl.cluster.messages import ChannelSpec, Message
from distrl.cluster.proxy_sender import SenderSettings
from distrl.core.records import (
    PriorityUpdate,
    experience_spec,
    priority_update_spec,
    replay_batch_spec,
)
from distrl.core.specs import EnvironmentSpec
from distrl.lifecycle.task import Task
from distrl.memories.rate_limiter import RateLimiter
from distrl.memories.replay_memory import ReplayMemory


def experience_channel(spec: EnvironmentSpec) -> ChannelSpec:
    """Actors → memory j, hosted by memory j."""
    return ChannelSpec("experience", experience_spec(spec), capacity=2)


def batches_channel(spec: EnvironmentSpec) -> ChannelSpec:
    """Memories → learner k, hosted by learner k. Small: what waits grows stale."""
    return ChannelSpec("batches", replay_batch_spec(spec), capacity=1)


def priorities_channel() -> ChannelSpec:
    """Learners → memory j, hosted by memory j."""
    return ChannelSpec("priorities", priority_update_spec(), capacity=8)


_LIMITER = ("inserted", "sampled")


class ApexMemory:
    """One memory task. Nothing here blocks: what cannot be done now is done when the
    other side has moved, and input comes before output."""

    def __init__(
        self,
        task: Task,
        spec: EnvironmentSpec,
        memory: ReplayMemory,
        limiter: RateLimiter,
        replay: Replay,
    ):
        self._task, self._memory, self._limiter = task, memory, limiter
        self._replay = replay
        self._waiting: Message | None = None  # experience the limiter holds back
        self._experience = task.receiver(experience_channel(spec), capacity=1)
        self._priorities = task.receiver(priorities_channel(), capacity=8)
        self._batches = task.sender(
            batches_channel(spec),
            task.address("learner", 0),
            SenderSettings(capacity=1, max_message_bytes=0),
        )
        task.counters.add("min_size_to_sample", replay.min_size_to_sample)
        task.gauges["memory_capacity"] = memory.capacity
        task.counters.add("replay_capacity", memory.capacity)
        task.counters.add("replay_bytes", memory.num_bytes)

    def state(self) -> dict[str, np.ndarray]:
        """What a snapshot holds: copies."""
        counts = self._limiter.state().items()
        limits = {f"limiter/{key}": np.asarray(count) for key, count in counts}
        return self._memory.state() | limits

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Raises ValueError for what does not fit; nothing changes then."""
        missing = [key for key in _LIMITER if f"limiter/{key}" not in state]
        if missing:
            raise ValueError(f"no state of the limiter: {missing}")
        self._memory.restore(state)
        self._limiter.restore({k: int(state[f"limiter/{k}"]) for k in _LIMITER})
        self._task.gauges["memory_size"] = self._memory.size

    @property
    def num_bytes(self) -> int:
        """Of the largest snapshot."""
        return self._memory.num_bytes

    def serve(self) -> bool:
        updated, stored = self._take_priorities(), self._take_experience()
        sent = self._send_bundle()
        return updated or stored or sent

    def _take_priorities(self) -> bool:
        message = self._priorities.get()
        if message is None:
            return False
        self._update(message)
        return True

    def _update(self, message: Message) -> None:
        update: PriorityUpdate = message.record
        ours = update.incarnation == self._task.producer.incarnation
        stale = np.count_nonzero(~ours)
        stale += self._memory.update(update.id[ours], update.priority[ours])
        self._task.counters.add("stale_updates", int(stale))

    def _take_experience(self) -> bool:
        message = self._waiting or self._experience.get()
        if message is None:
            return False
        if not self._limiter.can_insert(message.header.rows):
            self._waiting = message
            return False
        self._waiting = None
        self.store(message)
        return True

    def store(self, message: Message) -> None:
        rows = message.header.rows
        stored = self._memory.insert(message.header.producer, message.record)
        self._limiter.insert(rows)
        self._task.counters.add("inserted", stored)
        self._task.counters.add("orphans", rows - stored)
        self._task.gauges["memory_size"] = self._memory.size

    def _send_bundle(self) -> bool:
        rows = self._replay.bundle_rows
        if not (self._batches.has_room and self._limiter.can_sample(rows)):
            return False
        batch = self._memory.sample(
            self._replay.batches_per_message, self._replay.batch_size
        )
        if not self._batches.put(batch, rows, timeout=0.0):
            return False
        self._limiter.sample(rows)
        self._task.counters.add("sampled", rows)
        return True

    def open(self) -> None:
        self._limiter.open()
        if self._waiting is not None:
            self.store(self._waiting)
            self._waiting = None

    def finish(self) -> None:
        priorities = self._take_priorities  # or the learner could wait for room
        self._task.drain(self._experience, "actor", self.store, priorities)
        self._task.end_senders(priorities)
        self._task.drain(self._priorities, "learner", self._update)
