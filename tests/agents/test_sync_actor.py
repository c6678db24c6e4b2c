"""What an actor does with the plan of a round."""

from types import SimpleNamespace

import numpy as np
import pytest

from distrl.agents import sync_agent
from distrl.agents.sync_agent import SyncAgent
from distrl.cluster.messages import Producer
from distrl.core.counters import Counters
from distrl.lifecycle.round_follower import Round
from distrl.lifecycle.round_plan import RoundPlan, Share

HOSTS = {0: 500, 1: 501}


class Task:
    """Keeps what is handed over."""

    def __init__(self, incarnation=100):
        self.index, self.producer = 3, Producer("actor", 3, incarnation)
        self.counters, self.handed = Counters(), []

    def hand_over(self, sender, record, rows, **tags):
        self.handed.append((sender, record, rows, tags))


def collector():
    return SimpleNamespace(load=lambda *_: None, collect=lambda: ("record", 7))


def do_share(task, plan):
    found = Round(plan, np.zeros(4, np.uint8))
    SyncAgent._do_share(None, task, collector(), found, ["to 0", "to 1"])


def test_a_share_is_for_the_memory_that_the_plan_names():
    """Not for an earlier life of it, to which a connection may still be open."""
    task = Task()
    do_share(task, RoundPlan(9, 4, {3: Share(100, 1)}, hosts=HOSTS))
    tags = {"version": 4, "round": 9, "owner": 501}
    assert task.handed == [("to 1", "record", 7, tags)]
    assert task.counters.get("env_steps") == 7


@pytest.mark.parametrize("shares", [{}, {2: Share(100, 0)}, {3: Share(99, 0)}])
def test_who_is_no_member_collects_nothing(shares):
    task = Task()
    do_share(task, RoundPlan(9, 4, shares, hosts=HOSTS))
    assert task.handed == [] and task.counters.get("env_steps") == 0


def stopping(gone, shutdown_secs=60.0):
    return SimpleNamespace(
        should_stop=True,
        timeouts=SimpleNamespace(shutdown_secs=shutdown_secs),
        address=lambda job, index: f"{job}/{index}",
        peer_is_gone=lambda address: address == "learner/0" and gone,
    )


def test_without_a_learner_nobody_waits_for_the_last_round():
    assert sync_agent._Patience(stopping(gone=True)).ended
    assert not sync_agent._Patience(stopping(gone=False)).ended
    assert sync_agent._Patience(stopping(gone=False, shutdown_secs=0.0)).ended
    task = stopping(gone=True)
    task.should_stop = False
    assert not sync_agent._Patience(task).ended
