"""Agents whose actors all act with the same parameters, one round at a time."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from distrl.agents.actor_learner_agent import (
    IDLE_SECS,
    ActorLearnerAgent,
    leave,
    parameter_store,
    round_reader,
)
from distrl.agents.settings import Rounds
from distrl.agents.sync_learner import SyncLearner
from distrl.agents.sync_memory import SyncMemory, shares_channel
from distrl.cluster.proxy_sender import ProxySender, SenderSettings
from distrl.core import specs
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.core.threads import Deadline
from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle.round_follower import Round, RoundFollower
from distrl.lifecycle.task import Task


class Collector(Protocol):
    """What an actor of a synchronous agent does."""

    def load(self, version: int, parameters: np.ndarray) -> None:
        """Acts under these parameters from now on."""

    def collect(self) -> tuple[Nest, int] | None:
        """A share and its rows; None when the task has to leave in the middle."""

    def idle(self) -> bool:
        """A bit of what can wait, such as a step of an evaluation; False if none."""

    def close(self) -> None:
        """Frees what it holds."""


class _Patience:
    """With the end of the rounds, while the run stops."""

    def __init__(self, task: Task):
        self._task = task
        self._limit: Deadline | None = None

    @property
    def ended(self) -> bool:
        """Whether the last round will not be announced any more: there is no learner to
        do so, or it takes too long."""
        task = self._task
        if not task.should_stop:
            return False
        self._limit = self._limit or Deadline(task.timeouts.shutdown_secs)
        return self._limit.passed or task.peer_is_gone(task.address("learner", 0))


class SyncAgent(ActorLearnerAgent):
    """Rounds: every member collects its share under exactly the same parameters, the
    memory that owns it makes its part whole, the learner trains on exactly that."""

    def __init__(self, *arguments: object, rounds: Rounds):
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.rounds = rounds

    @property
    def evaluation_episodes(self) -> int:
        return self.rounds.evaluation_episodes

    @abc.abstractmethod
    def record(self, spec: EnvironmentSpec) -> Nest:
        """The spec of what actors ship."""

    @abc.abstractmethod
    def make_collector(
        self, task: Task, spec: EnvironmentSpec, groups: Sequence[VectorEnvironment]
    ) -> Collector:
        """Called once the task has joined."""

    @abc.abstractmethod
    def make_learner(self, task: Task, spec: EnvironmentSpec) -> SyncLearner:
        """Called before the task joins."""

    def run_memory(self, task: Task) -> None:
        spec = self.environment_spec()
        self.check(spec, task)
        task.join(specs.describe(spec))
        memory = SyncMemory(task, self.record(spec), self.rounds)
        patience = _Patience(task)
        while not memory.saw_last and not patience.ended:
            task.heartbeat.progress += 1
            if not memory.serve():
                task.wait_for_news(IDLE_SECS)
        memory.finish()
        leave(task)

    def run_actor(self, task: Task) -> None:
        with contextlib.ExitStack() as stack:
            groups = self.make_groups(task.run.seed, task.index, task.restart)
            for group in groups:
                stack.enter_context(group)
            spec = groups[0].spec
            self.check(spec, task)
            task.join(specs.describe(spec))
            collector = self.make_collector(task, spec, groups)
            stack.callback(collector.close)
            follower = RoundFollower(
                round_reader(task),
                parameter_store(task),
                task.patience_secs,
                task.wakeup.set,
            )
            stack.callback(follower.cancel)
            settings = SenderSettings(capacity=2, max_message_bytes=0)
            senders = [
                task.sender(shares_channel(self.record(spec)), address, settings)
                for address in task.addresses("memory")
            ]
            self._collect(task, collector, follower, senders)
            task.end_senders()
            follower.stop(5.0)
        leave(task)

    def _collect(
        self,
        task: Task,
        collector: Collector,
        follower: RoundFollower,
        senders: list[ProxySender],
    ) -> None:
        """Does its share of every round, until the last one was announced."""
        patience = _Patience(task)
        while not patience.ended and not task.signals.received:
            task.heartbeat.progress += 1
            found = follower.take()
            if found is None:
                if not collector.idle():
                    task.wait_for_news(IDLE_SECS)
            elif found.plan.last:
                return
            else:
                self._do_share(task, collector, found, senders)

    def _do_share(
        self,
        task: Task,
        collector: Collector,
        found: Round,
        senders: list[ProxySender],
    ) -> None:
        plan = found.plan
        share = plan.shares.get(task.index)
        joined_later = share is None or share.incarnation != task.producer.incarnation
        if share is None or joined_later or found.parameters is None:
            return
        collector.load(plan.version, found.parameters)
        collected = collector.collect()
        if collected is not None:
            record, rows = collected
            task.counters.add("env_steps", rows)
            tags = {"version": plan.version, "round": plan.round}
            owner = plan.hosts.get(share.memory, 0)
            task.hand_over(senders[share.memory], record, rows, owner=owner, **tags)
