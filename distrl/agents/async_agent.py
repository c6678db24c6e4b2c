"""Agents whose jobs run at their own pace: nobody waits for a round."""

from __future__ import annotations

import abc
import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from distrl.agents.actor_learner_agent import (
    IDLE_SECS,
    ActorLearnerAgent,
    leave,
    parameter_store,
)
from distrl.agents.memory_snapshots import MemorySnapshots
from distrl.agents.settings import Learning
from distrl.cluster.messages import ChannelSpec, Message
from distrl.cluster.parameter_threads import ParameterPuller
from distrl.cluster.proxy_sender import ProxySender, SenderSettings
from distrl.core import specs
from distrl.core.errors import PeerUnreachable
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.core.threads import Deadline
from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle.task import Task

log = logging.getLogger(__name__)

# What waits grows stale, and has the size that the agent wants.
_TO_MEMORIES = SenderSettings(capacity=2, max_message_bytes=0)


class Shipment(NamedTuple):
    """A record on its way to one memory."""

    memory: int
    record: Nest
    rows: int


class Actor(Protocol):
    """What one actor does between two looks at its flags."""

    def load(self, version: int, parameters: np.ndarray) -> None:
        """Acts under these parameters from now on."""

    def step(self) -> None:
        """Steps all environments once."""

    def shipments(self) -> Iterator[Shipment]:
        """What is ready to be shipped."""

    def flush(self) -> Iterator[Shipment]:
        """All that is left at the end."""

    def evaluate(self) -> None:
        """Plays greedy episodes where this actor does so and they are due."""

    def close(self) -> None:
        """Frees what it holds."""


class Memory(Protocol):
    """What one memory does; it never blocks."""

    def serve(self) -> bool:
        """One round over everything that can be done; False when nothing could."""

    def open(self) -> None:
        """From now on takes in whatever comes (the run ends)."""

    def store(self, message: Message) -> None:
        """Takes in one message of experience."""

    def finish(self) -> None:
        """Serves what is left, and drains what learners still send."""

    def state(self) -> dict[str, np.ndarray]:
        """What a snapshot holds: copies."""

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Goes on from a `state()`. Raises ValueError for what does not fit; nothing
        changes then."""

    @property
    def num_bytes(self) -> int:
        """Of the largest `state()`, about."""


class AsyncAgent(ActorLearnerAgent):
    """The loops of asynchronous agents; what is stored and trained is the subclass's.

    Actors pull whatever parameters are newest, memories serve while they take in, the
    learner publishes every so many steps.
    """

    learning: Learning

    @abc.abstractmethod
    def make_actor(
        self, task: Task, spec: EnvironmentSpec, groups: Sequence[VectorEnvironment]
    ) -> Actor:
        """Called once the task has joined, with the environments' groups."""

    @abc.abstractmethod
    def make_memory(self, task: Task, spec: EnvironmentSpec) -> Memory:
        """Called once the task has joined; opens the memory's channels."""

    @abc.abstractmethod
    def experience_channel(self, spec: EnvironmentSpec) -> ChannelSpec:
        """What actors send to each memory."""

    # The jobs.

    def run_memory(self, task: Task) -> None:
        spec = self.environment_spec()
        self.check(spec, task)
        task.join(specs.describe(spec))
        memory = self.make_memory(task, spec)
        with contextlib.closing(self._make_snapshots(task, memory)) as snapshots:
            snapshots.restore()
            while not task.should_stop:
                task.heartbeat.progress += 1
                if not memory.serve():
                    task.wait_for_news(IDLE_SECS)
                snapshots.look()
            memory.open()
            memory.finish()
            snapshots.finish()
        leave(task)

    def _make_snapshots(self, task: Task, memory: Memory) -> MemorySnapshots:
        return MemorySnapshots(task, memory, self.learning.memory_snapshots)

    def run_actor(self, task: Task) -> None:
        with contextlib.ExitStack() as stack:
            groups = self.make_groups(task.run.seed, task.index, task.restart)
            for group in groups:
                stack.enter_context(group)
            spec = groups[0].spec
            self.check(spec, task)
            task.join(specs.describe(spec))
            channel = self.experience_channel(spec)
            senders = [
                task.sender(channel, address, _TO_MEMORIES)
                for address in task.addresses("memory")
            ]
            actor = self.make_actor(task, spec, groups)
            puller = ParameterPuller(
                parameter_store(task), self._pull_secs(), task.patience_secs
            )
            try:
                self._act(task, actor, puller, senders)
            finally:
                actor.close()
            puller.stop(5.0)
        leave(task)

    def _pull_secs(self) -> float:
        return 0.2

    def _act(
        self,
        task: Task,
        actor: Actor,
        puller: ParameterPuller,
        senders: list[ProxySender],
    ) -> None:
        if not self._load_first(task, actor, puller):
            task.end_senders()
            return
        while not task.should_stop:
            task.heartbeat.progress += 1
            actor.step()
            for shipment in actor.shipments():
                task.hand_over(senders[shipment.memory], *shipment[1:])
            newest = puller.newest()
            if newest is not None:
                actor.load(*newest)
            actor.evaluate()
        for shipment in actor.flush():
            task.hand_over(senders[shipment.memory], *shipment[1:])
        task.end_senders()

    def _load_first(self, task: Task, actor: Actor, puller: ParameterPuller) -> bool:
        """Waits for the first parameters; False when the run ends before they come."""
        deadline = Deadline(task.timeouts.startup_secs)
        while not task.should_stop:
            puller.wait(IDLE_SECS)
            newest = puller.newest()
            if newest is not None:
                actor.load(*newest)
                return True
            task.heartbeat.progress += 1
            if deadline.passed:
                raise PeerUnreachable(
                    f"no parameters within {task.timeouts.startup_secs:.0f} s: "
                    "has learner 0 started?"
                )
        return False
