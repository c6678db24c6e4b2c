"""The memory of a synchronous agent: whom it waits for, and what becomes of rows."""

import dataclasses
import time

import numpy as np
import pytest
from sync_fakes import RECORD, FakeFollower, FakeTask, message

from distrl.agents import sync_memory
from distrl.agents.settings import Rounds
from distrl.agents.sync_memory import SyncMemory
from distrl.cluster.messages import Producer
from distrl.core.threads import Deadline
from distrl.lifecycle.round_plan import RoundPlan, Share

pytestmark = pytest.mark.timeout(20)


def actor(index, incarnation=None):
    return Producer("actor", index, incarnation or 100 + index)


def plan(round, actors=(0, 1), version=9, memory=0, last=False):
    shares = {index: Share(100 + index, memory) for index in actors}
    return RoundPlan(round, version, shares, last)


class Rig:
    """A memory and all that is around it."""

    def __init__(self, task, **rounds):
        self.task = task
        task.sees(actor_0="joined", actor_1="joined")
        self.memory = SyncMemory(task, RECORD, Rounds(**rounds))
        self.plans = self.memory._follower.plans
        (self.shares,), (self.parts,) = task.receivers, task.senders
        self.received = 0

    def arrives(self, *messages):
        self.shares.messages.extend(messages)
        self.received += sum(each.header.rows for each in messages)

    def serve(self):
        """Until there is nothing to do."""
        for _ in range(50):
            if not self.memory.serve() and not self.shares.messages:
                return
        pytest.fail("it never comes to rest")

    def sent(self):
        """Round, version and the actors of each part's rows."""
        return [
            (round, version, np.unique(record.value).tolist())
            for round, version, rows, record in self.parts.sent
        ]

    def count(self, name):
        return self.task.counters.get(name)

    def check_books(self):
        """At the end every row has gone on, or is stale."""
        assert self.count("sampled") + self.count("stale_rows") == self.received
        assert sum(part[2] for part in self.parts.sent) == self.count("sampled")


@pytest.fixture
def make(monkeypatch, tmp_path):
    monkeypatch.setattr(sync_memory, "round_reader", lambda task: None)
    monkeypatch.setattr(sync_memory, "RoundFollower", FakeFollower)
    return lambda **rounds: Rig(FakeTask("memory", tmp_path), **rounds)


def test_a_part_goes_on_once_it_is_whole(make):
    rig = make()
    rig.plans.append(plan(3))
    rig.arrives(message(actor(1), 4, round=3))
    rig.serve()
    assert rig.sent() == []
    rig.arrives(message(actor(0), 2, round=3))
    rig.serve()
    assert rig.sent() == [(3, 9, [0, 1])]
    assert rig.parts.sent[0][3].value.tolist() == [0, 0, 1, 1, 1, 1]
    assert rig.count("inserted") == rig.count("sampled") == 6
    rig.check_books()


def test_a_part_is_for_the_learner_that_has_planned_it(make):
    rig = make()
    rig.plans.append(dataclasses.replace(plan(3), learner=77))
    rig.arrives(message(actor(0), 2, round=3), message(actor(1), 2, round=3))
    rig.serve()
    assert rig.parts.owner == 77


def test_shares_may_come_before_the_plan(make):
    rig = make()
    rig.arrives(message(actor(0), 2, round=0), message(actor(1), 2, round=0))
    rig.serve()
    assert rig.count("stale_rows") == 0
    rig.plans.append(plan(0))
    rig.serve()
    assert rig.sent() == [(0, 9, [0, 1])]
    rig.check_books()


@pytest.mark.parametrize(
    "stranger",
    [
        message(actor(0), 5, round=2),  # of an earlier round
        message(actor(0, incarnation=77), 5, round=3),  # before its restart
        message(actor(4), 5, round=3),  # of nobody in the plan
    ],
)
def test_what_is_not_of_the_round_is_stale(make, stranger):
    rig = make()
    rig.plans.append(plan(3))
    rig.arrives(stranger, *(message(actor(i), 2, round=3) for i in (0, 1)))
    rig.serve()
    assert rig.count("stale_rows") == 5 and rig.count("inserted") == 4
    assert rig.sent() == [(3, 9, [0, 1])]
    rig.check_books()


def test_an_actor_that_its_view_does_not_list_yet_is_waited_for(make):
    """The plan is faster than the beats: nobody must lose a share by that."""
    rig = make()
    rig.task.sees(actor_0="joined")
    rig.plans.append(plan(0))
    rig.arrives(message(actor(0), 2, round=0))
    rig.serve()
    assert rig.sent() == []
    rig.arrives(message(actor(1), 2, round=0))
    rig.serve()
    assert rig.sent() == [(0, 9, [0, 1])]


@pytest.mark.parametrize("state", ["lost", "failed"])
def test_an_actor_that_dies_is_not_waited_for(make, monkeypatch, state):
    monkeypatch.setattr(sync_memory, "_QUIET_SECS", 0.0)
    rig = make()
    rig.plans.append(plan(0))
    rig.arrives(message(actor(0), 2, round=0))
    rig.serve()
    rig.task.sees(actor_0="joined", actor_1=state)
    rig.serve()
    assert rig.sent() == [(0, 9, [0])]
    rig.check_books()


def test_what_an_actor_sent_before_its_end_is_not_lost(make):
    rig = make()
    rig.plans.append(plan(0))
    rig.shares.ended.add(actor(1))
    rig.task.sees(actor_0="joined", actor_1="done")
    rig.shares.late = 1  # still on its way into the local queue
    rig.arrives(message(actor(0), 2, round=0))
    rig.serve()
    assert rig.sent() == []
    rig.shares.late = 0
    rig.arrives(message(actor(1), 2, round=0))
    rig.serve()
    assert rig.sent() == [(0, 9, [0, 1])]


def test_an_actor_that_left_is_not_waited_for(make):
    rig = make()
    rig.plans.append(plan(0))
    rig.arrives(message(actor(0), 2, round=0))
    rig.task.sees(actor_0="joined", actor_1="done")
    rig.shares.ended.add(actor(1))
    rig.serve()
    assert rig.sent() == [(0, 9, [0])]


def test_an_actor_that_left_without_a_word_holds_nobody_up(make, monkeypatch):
    """It may leave before it has a channel to end."""
    monkeypatch.setattr(sync_memory, "_QUIET_SECS", 0.2)
    rig = make()
    rig.plans.append(plan(0))
    rig.task.sees(actor_0="joined", actor_1="done")
    rig.arrives(message(actor(0), 2, round=0))
    rig.serve()
    assert rig.sent() == []  # something may be on its way
    deadline = Deadline(10.0)
    while not rig.sent() and not deadline.passed:
        rig.serve()
    assert rig.sent() == [(0, 9, [0])]


def test_an_actor_that_was_replaced_is_not_waited_for(make):
    rig = make()
    rig.plans.append(plan(0))
    rig.arrives(message(actor(0), 2, round=0))
    rig.task.sees(actor_0="joined", actor_1=(500, "joined"))
    rig.serve()
    rig.arrives(message(actor(1, incarnation=500), 3, round=0))  # not half of it
    rig.serve()
    assert rig.sent() == [(0, 9, [0])] and rig.count("stale_rows") == 3
    rig.check_books()


def test_when_all_are_gone_the_part_is_empty(make, monkeypatch):
    monkeypatch.setattr(sync_memory, "_QUIET_SECS", 0.0)
    rig = make()
    rig.plans.append(plan(0))
    rig.task.sees(actor_0="lost", actor_1="lost")
    rig.serve()
    assert rig.sent() == [(0, 9, [])] and rig.parts.sent[0][2] == 0


def test_who_is_late_is_dropped_only_where_that_is_wanted(make):
    for policy, expected in (("wait", []), ("drop", [(0, 9, [0])])):
        rig = make(late_shares=policy, share_timeout_secs=0.2)
        rig.plans.append(plan(0))
        rig.arrives(message(actor(0), 2, round=0))
        began = time.monotonic()
        while time.monotonic() - began < 0.4:
            rig.serve()
            if time.monotonic() - began < 0.15:
                assert rig.sent() == []
        assert rig.sent() == expected
        rig.arrives(message(actor(1), 3, round=0))
        rig.serve()
        assert rig.count("stale_rows") == (3 if policy == "drop" else 0)
        rig.check_books()


def test_a_void_round_is_stale_and_done_again(make):
    rig = make()
    rig.plans.append(plan(0))
    rig.arrives(message(actor(0), 2, round=0))
    rig.serve()
    rig.plans.append(plan(1))
    rig.serve()
    assert rig.count("stale_rows") == 2
    rig.arrives(message(actor(1), 2, round=0))  # of the void one
    rig.arrives(message(actor(0), 3, round=1), message(actor(1), 3, round=1))
    rig.serve()
    assert rig.sent() == [(1, 9, [0, 1])] and rig.count("stale_rows") == 4
    rig.check_books()


def test_a_part_that_waits_for_room_keeps_its_round_and_version(make):
    rig = make()
    rig.parts.room = False
    rig.plans.append(plan(0, version=9))
    rig.arrives(*(message(actor(i), 2, round=0) for i in (0, 1)))
    rig.serve()
    rig.plans.append(plan(1, version=10))
    rig.serve()
    rig.parts.room = True
    rig.arrives(*(message(actor(i), 2, round=1) for i in (0, 1)))
    rig.serve()
    assert rig.sent() == [(0, 9, [0, 1]), (1, 10, [0, 1])]
    rig.check_books()


def test_a_plan_without_a_share_here_changes_nothing(make):
    rig = make()
    rig.plans.append(plan(0, memory=1))
    rig.serve()
    assert rig.sent() == [] and not rig.memory.saw_last


def test_the_end_counts_every_row(make):
    rig = make()
    rig.parts.room = False
    rig.plans.append(plan(0))
    rig.arrives(*(message(actor(i), 2, round=0) for i in (0, 1)))
    rig.serve()  # a part that nobody takes
    rig.plans.append(plan(1))
    rig.serve()
    rig.arrives(message(actor(0), 3, round=1))  # half a round
    rig.arrives(message(actor(1), 5, round=2))  # of a plan that never came
    rig.serve()
    rig.plans.append(plan(3, actors=(), last=True))
    rig.serve()
    assert rig.memory.saw_last
    rig.arrives(message(actor(1), 7, round=1))  # in the farewell
    rig.memory.finish()
    assert rig.count("sampled") == 0 and rig.count("stale_rows") == 4 + 3 + 5 + 7
    rig.check_books()
