"""What the learner of a synchronous agent does: plan rounds, train on whole ones."""

from __future__ import annotations

import abc
import dataclasses
import logging
import time
from collections.abc import Mapping

import numpy as np

from distrl.agents.actor_learner_agent import round_board, round_reader
from distrl.agents.learner_loop import LearnerLoop, Publish
from distrl.agents.sync_memory import parts_channel
from distrl.cluster.messages import Message, Producer
from distrl.core.errors import PeerUnreachable
from distrl.core.specs import Nest
from distrl.core.threads import Deadline
from distrl.lifecycle import run_state
from distrl.lifecycle.failure_policy import RESTART
from distrl.lifecycle.round_plan import RoundPlan, Share

log = logging.getLogger(__name__)

_RETRY_SECS = 0.2  # between attempts to reach the ps


class SyncLearner(LearnerLoop):
    """One round after the other: publish, plan, wake, collect the parts, train.

    A subclass says what the record of a share is and what training on a round means.
    """

    @property
    @abc.abstractmethod
    def record(self) -> Nest:
        """The spec of what actors ship."""

    @abc.abstractmethod
    def train(self, parts: list[Message]) -> None:
        """Updates the parameters by the whole round; counts learner steps."""

    def open_channels(self) -> None:
        self._channel = self.task.receiver(parts_channel(self.record), capacity=8)
        self._board = round_board(self.task, self.store)
        self._newest = -1, np.zeros(0, np.uint8)  # version and parameters
        self._round = self._last_planned()
        self._first_round = self._round + 1
        self._plan: RoundPlan | None = None  # None: no round is under way
        self._boards: set[Producer] = set()  # the ps that hold its plan and parameters
        self._parts: dict[int, Message] = {}  # by memory
        self._first = Deadline(self.task.timeouts.startup_secs)

    def _last_planned(self) -> int:
        """The number of the last round that an earlier life of this task has planned,
        -1 for none."""
        if not self.task.restart:
            return -1
        reader = round_reader(self.task)
        plan = reader.read()
        reader.close()
        if plan is None:  # ps 0 is blank, too: no round is shorter than a millisecond
            return time.time_ns() // 10**6
        return plan.round

    def open_publication(self) -> Publish:
        """A new version waits for the next round."""
        self._closing.callback(self.store.close)
        return self._keep

    def _keep(self, version: int, parameters: np.ndarray) -> None:
        self._newest = version, parameters

    def step(self, timeout: float) -> None:
        if self._plan is None and not self._begin():
            self.task.wait_for_news(timeout)
            return
        began = time.monotonic()
        with self.task.timer.measure("wait"):
            message = self._channel.get(timeout)
        self._waited += time.monotonic() - began
        if message is not None:
            self._take(message)
        self._void_if_lost()
        if self._is_whole:
            self._finish_round()
        self.now_and_then()

    def _begin(self) -> bool:
        """Plans the next round, once there is somebody to collect it."""
        members = {
            producer.task: producer.incarnation
            for producer, state in self.task.view.producers("actor").items()
            if state == run_state.JOINED
        }
        expected = self.task.cluster.num_actors
        if not members or (len(members) < expected and not self._first.passed):
            return False
        hosts = self._memories()
        if not hosts:
            return False
        self._first = Deadline(0.0)
        shares = {
            actor: Share(incarnation, hosts[actor % len(hosts)])
            for actor, incarnation in members.items()
        }
        self._put_up(shares)
        return True

    def _memories(self) -> list[int]:
        """Those that may own shares: all, or, where a lost one is not started again,
        those that are left. A round with a lost one would be void at once."""
        states = self.task.view.producers("memory").items()
        here = sorted(p.task for p, state in states if state == run_state.JOINED)
        waits = self.task.run.failures.of("memory").action == RESTART
        return [] if waits and len(here) < len(self.task.cluster.memory) else here

    def _put_up(self, shares: dict[int, Share], last: bool = False) -> None:
        """Writes parameters and plan, and wakes everybody."""
        self._began = time.monotonic()
        silence = Deadline(self.task.patience_secs)
        while not self._written(shares, last):
            if silence.passed:
                raise PeerUnreachable(f"no ps took the plan of round {self._round}")
            self.task.heartbeat.progress += 1
            self.task.wait_for_news(_RETRY_SECS)
        self._parts = {}
        self._waited = time.monotonic() - self._began
        self.task.counters.add("rounds", 0 if last else 1)

    def _written(self, shares: dict[int, Share], last: bool) -> bool:
        """Whether the ps took a plan under the next number."""
        self.task.heartbeat.check()  # a learner that was replaced publishes nothing
        version, parameters = self._newest
        self._round += 1
        view = self.task.view
        memories = view.producers("memory")
        learner = self.task.producer.incarnation
        plan = RoundPlan(self._round, version, shares, last, learner=learner)
        hosts = {p.task: p.incarnation for p in memories if p.task in plan.memories}
        plan = dataclasses.replace(plan, hosts=hosts)
        names = self._names(view.producers("actor")), self._names(memories)
        try:
            part = self.store.write_others(version, parameters)
            self._board.write(plan, part, *names)
        except PeerUnreachable as error:
            log.warning("round %d is not planned yet: %s", self._round, error)
            return False
        self._plan, self._boards = plan, set(view.producers("ps"))
        return True

    def _names(self, members: Mapping[Producer, str]) -> list[str]:
        """Of those who can be woken."""
        return [str(p) for p, state in members.items() if state == run_state.JOINED]

    def _take(self, message: Message) -> None:
        header, plan = message.header, self._plan
        expected = (
            plan is not None
            and header.round == plan.round
            and header.producer in _hosts(plan)
        )
        if expected and header.task not in self._parts:
            self._parts[header.task] = message
        else:
            self.task.counters.add("stale_rows", header.rows)

    def _void_if_lost(self) -> None:
        """A round whose memory is gone, or whose plan may be, is done again."""
        if self._plan is None:
            return
        if self._boards != set(self.task.view.producers("ps")):
            log.warning("round %d is void: a ps was started again", self._round)
            self._abandon()
            return
        members = self.task.view.producers("memory")
        for host in _hosts(self._plan):
            if host.task not in self._parts and members.get(host) != run_state.JOINED:
                log.warning("round %d is void: %s is gone", self._round, host)
                self._abandon()
                return

    def _abandon(self) -> None:
        stale = sum(part.header.rows for part in self._parts.values())
        self.task.counters.add("stale_rows", stale)
        self._plan, self._parts = None, {}

    @property
    def _is_whole(self) -> bool:
        return self._plan is not None and len(self._parts) == len(self._plan.hosts)

    def _finish_round(self) -> None:
        parts = [self._parts[index] for index in sorted(self._parts)]
        self._plan, self._parts = None, {}
        rows = sum(part.header.rows for part in parts)
        if not rows:
            return
        collecting = max(part.record.collect_secs.max(initial=0.0) for part in parts)
        self.train(parts)
        self.task.counters.add("trained", rows)
        if (
            self._round > self._first_round
        ):  # the first one also opens everybody's sessions
            self._count_time(float(collecting))
        self.publish()

    def _count_time(self, collecting: float) -> None:
        """Of a round: all of it, and what of it was waiting, but not collecting."""
        counters = self.task.counters
        counters.add("round_secs", time.monotonic() - self._began)
        counters.add("round_wait_secs", self._waited)
        counters.add("round_overhead_secs", max(0.0, self._waited - collecting))

    def drain(self) -> None:
        """Finishes the round under way, ends the rounds, reads the memories' ends."""
        limit = Deadline(self.task.timeouts.shutdown_secs)
        while self._plan is not None and not limit.passed:
            self.task.heartbeat.progress += 1
            message = self._channel.get(0.05)
            if message is not None:
                self._take(message)
            self._void_if_lost()
            if self._is_whole:
                self._finish_round()
        if self._plan is not None:
            self._abandon()
        self._put_up({}, last=True)
        self._plan = None
        self.task.drain(self._channel, "memory", self._take)
        self._board.close()


def _hosts(plan: RoundPlan) -> list[Producer]:
    """The memories that own shares of a round, whose parts make it whole."""
    return [Producer("memory", index, host) for index, host in plan.hosts.items()]
