"""What the memory of a synchronous agent does: make rounds whole."""

from __future__ import annotations

import logging

from distrl.agents.actor_learner_agent import round_reader
from distrl.agents.settings import Rounds
from distrl.cluster.messages import ChannelSpec, Message, Producer
from distrl.cluster.proxy_sender import SenderSettings
from distrl.core.specs import Nest
from distrl.core.threads import Deadline
from distrl.lifecycle import run_state
from distrl.lifecycle.round_follower import RoundFollower
from distrl.lifecycle.round_plan import RoundPlan
from distrl.lifecycle.task import Task
from distrl.memories.aggregate import AggregateMemory, Part

log = logging.getLogger(__name__)

_QUIET_SECS = 1.0  # after which nothing is on its way from an actor without END


def shares_channel(record: Nest) -> ChannelSpec:
    """Actors → memory j, hosted by memory j."""
    return ChannelSpec("experience", record, capacity=8)


def parts_channel(record: Nest) -> ChannelSpec:
    """Memories → learner 0, hosted by learner 0."""
    return ChannelSpec("batches", record, capacity=8)


class SyncMemory:
    """One memory task: owns the shares that the plan gives it, and sends them on as one
    part once every member has delivered, or is gone, or (policy "drop") is late."""

    def __init__(self, task: Task, record: Nest, rounds: Rounds):
        self._task, self._rounds = task, rounds
        self._aggregate = AggregateMemory()
        self._late = self._quiet = Deadline(0.0)
        self._plan = RoundPlan(-1, -1, {})  # of the round that it makes whole
        self._early: list[Message] = []  # of a round whose plan is on its way
        self._part: tuple[Part, RoundPlan] | None = None  # waits for room
        self.saw_last = False
        self._shares = task.receiver(shares_channel(record), capacity=8)
        self._parts = task.sender(
            parts_channel(record),
            task.address("learner", 0),
            SenderSettings(capacity=2, max_message_bytes=0),
        )
        self._follower = RoundFollower(
            round_reader(task),
            None,
            task.patience_secs,
            task.wakeup.set,
        )

    def serve(self) -> bool:
        """One round over everything that can be done; False when nothing could."""
        began = self._begin()
        message = self._shares.get()
        if message is not None:
            self._quiet = Deadline(_QUIET_SECS)
            self.store(message)
        else:
            self._drop_members()
        return self._send_part() or began or message is not None

    def _begin(self) -> bool:
        found = self._follower.take()
        if found is None:
            return False
        plan = found.plan
        self.saw_last = plan.last
        members = plan.of_memory(self._task.index)
        if members:
            stale = self._aggregate.begin(plan.round, members)
            self._plan = plan
            self._late = Deadline(self._rounds.share_timeout_secs)
            self._quiet = Deadline(_QUIET_SECS)
            self._count_stale(stale)
        early, self._early = self._early, []
        for message in early:
            self.store(message)
        return True

    def store(self, message: Message) -> None:
        """Takes in a share, or counts its rows as stale."""
        header, aggregate = message.header, self._aggregate
        if header.round > aggregate.round and not self.saw_last:
            self._early.append(message)
            return
        taken = aggregate.add(
            header.round, header.task, header.incarnation, message.record, header.rows
        )
        if taken:
            self._task.counters.add("inserted", header.rows)
        else:
            self._count_stale(header.rows)

    def _count_stale(self, rows: int) -> None:
        if rows:
            self._task.counters.add("stale_rows", rows)

    def _drop_members(self) -> None:
        """Stops waiting for those who cannot deliver any more."""
        for actor, incarnation in self._aggregate.missing.items():
            member = Producer("actor", actor, incarnation)
            late = self._rounds.late_shares == "drop" and self._late.passed
            if late or self._is_gone(member):
                log.warning("round %d without %s", self._aggregate.round, member)
                self._aggregate.drop(actor)

    def _is_gone(self, member: Producer) -> bool:
        """Whether nothing of it can come any more."""
        actors = self._task.view.producers("actor")
        state = actors.get(member)
        if state is None:  # it was replaced, or is too new for our view
            return any(
                other.task == member.task and other.incarnation > member.incarnation
                for other in actors
            )
        if state not in run_state.GONE or self._shares.size > 0:
            return False
        return self._shares.has_ended(member) or self._quiet.passed

    def _send_part(self) -> bool:
        if self._part is None and self._aggregate.whole:
            self._part = self._aggregate.take(), self._plan
        if self._part is None:
            return False
        part, plan = self._part
        record = self._parts.spec.empty() if part.record is None else part.record
        tags = {"version": plan.version, "round": part.round, "owner": plan.learner}
        sent = self._parts.put(record, part.rows, 0.0, **tags)
        if sent:
            self._task.counters.add("sampled", part.rows)
            self._part = None
        return sent

    def finish(self) -> None:
        """Once the last plan was seen, or nobody writes one any more."""
        self.saw_last = True
        for message in self._early:
            self.store(message)
        self._task.drain(self._shares, "actor", self.store)
        self._count_stale(self._aggregate.abandon())
        if self._part is not None:
            self._count_stale(self._part[0].rows)
        self._task.end_senders()
        self._follower.stop(5.0)
