"""The learner of a synchronous agent: which rounds it plans, and what it trains on."""

from types import SimpleNamespace

import numpy as np
import pytest
from sync_fakes import RECORD, FakeBoard, FakeStore, FakeTask, message

from distrl.agents import sync_learner
from distrl.agents.settings import Learning
from distrl.agents.sync_learner import SyncLearner
from distrl.checkpoints.parameters import ParameterSpec
from distrl.cluster.messages import Producer
from distrl.core.errors import PeerUnreachable
from distrl.lifecycle.round_plan import Share

pytestmark = pytest.mark.timeout(20)

ALL = {f"{job}_{i}": "joined" for job in ("actor", "memory") for i in (0, 1)}


def memory(index, incarnation=None):
    return Producer("memory", index, incarnation or 100 + index)


class Learner(SyncLearner):
    """Keeps what it is to train on."""

    record = RECORD

    def train(self, parts):
        self.trained.append([part.header.task for part in parts])
        self.log.append(("train", parts[0].header.round))


class Rig:
    """A learner and all that is around it; `log` is what it did, in order."""

    def __init__(self, task, board):
        self.task, self.board, self.log = task, board, board.log
        session = SimpleNamespace(
            learner_steps=0,
            parameter_specs=[ParameterSpec("w", (1,), "float32")],
            parameters=lambda: [np.zeros(1, np.float32)],
        )
        self.learner = Learner(task, None, None, session, Learning())
        self.learner.trained, self.learner.log = [], self.log
        self.learner.store = FakeStore()
        self.learner.open_channels()
        (self.channel,) = task.receivers
        self.learner._publish = self.learner.open_publication()
        self.learner.publish()  # as `join` does

    def step(self, *messages):
        self.channel.messages.extend(messages)
        for _ in range(1 + len(self.channel.messages)):
            self.learner.step(0.0)
            if not self.channel.messages:
                return
        pytest.fail("it does not read its channel")

    @property
    def plan(self):
        return self.board.plans[-1]

    def numbers(self):
        return [plan.round for plan in self.board.plans]

    def count(self, name):
        return self.task.counters.get(name)


@pytest.fixture
def make(monkeypatch, tmp_path):
    def made(**task):
        board = FakeBoard()
        monkeypatch.setattr(sync_learner, "round_board", lambda task, store: board)
        rig = Rig(FakeTask("learner", tmp_path, **task), board)
        rig.task.sees(**ALL)
        return rig

    return made


def test_a_round_is_planned_before_anybody_is_woken(make):
    rig = make()
    rig.step()
    assert rig.log[:2] == [("parameters", 0), ("plan", 0)]
    assert sorted(rig.log[2:]) == [("wake", name.replace("_", "/")) for name in ALL]
    assert rig.plan.version == 0 and not rig.plan.last
    assert rig.plan.shares == {0: Share(100, 0), 1: Share(101, 1)}


def test_a_plan_names_the_incarnations_that_it_is_for(make):
    """So that nothing of the round goes to a memory, or a learner, that is dead."""
    rig = make()
    rig.task.sees(**(ALL | {"memory_0": (150, "joined")}))
    rig.step()
    assert rig.plan.hosts == {0: 150, 1: 101}
    assert rig.plan.learner == rig.task.producer.incarnation


def test_a_learner_that_was_replaced_plans_nothing(make):
    rig = make()

    def fenced():
        raise PeerUnreachable("replaced")

    rig.task.heartbeat.check = fenced
    with pytest.raises(PeerUnreachable, match="replaced"):
        rig.step()
    assert rig.board.plans == []


def test_the_first_round_waits_for_all_actors(make):
    rig = make()
    rig.task.sees(**(ALL | {"actor_1": "done"}))
    rig.step()
    assert rig.board.plans == []
    rig.task.sees(**ALL)
    rig.step()
    assert set(rig.plan.shares) == {0, 1}


def test_the_first_round_does_not_wait_for_ever(make):
    rig = make(num_actors=5, startup_secs=1e-6)
    rig.step()
    assert set(rig.plan.shares) == {0, 1}


def test_who_is_gone_gets_no_share_and_no_wake_up(make):
    rig = make(startup_secs=1e-6)
    rig.task.sees(**(ALL | {"actor_0": "lost", "actor_7": "joined"}))
    rig.step()
    assert rig.plan.shares == {1: Share(101, 1), 7: Share(107, 1)}
    assert ("wake", "actor/0") not in rig.log and ("wake", "actor/7") in rig.log
    rig.step(message(memory(1), 4, round=0))  # memory 0 owns nothing
    assert rig.learner.trained == [[1]]


def test_without_actors_there_is_no_round(make):
    rig = make(startup_secs=1e-6)
    rig.task.sees(memory_0="joined", memory_1="joined", actor_0="done")
    rig.step()
    assert rig.board.plans == []


def test_a_whole_round_is_trained_on_once_in_the_order_of_memories(make):
    rig = make()
    rig.step()
    rig.step(message(memory(1), 4, round=0))
    assert rig.learner.trained == []
    rig.step(message(memory(0), 3, round=0))
    assert rig.learner.trained == [[0, 1]] and rig.count("trained") == 7
    rig.step()
    after = [entry for entry in rig.log if entry[0] in ("train", "parameters", "plan")]
    assert after[2:] == [("train", 0), ("parameters", 1), ("plan", 1)]
    assert rig.plan.version == 1
    assert rig.count("stale_rows") == 0 and rig.count("rounds") == 2


@pytest.mark.parametrize(
    "stranger",
    [
        message(memory(1), 5, round=0),  # of another round
        message(memory(1, incarnation=55), 5, round=1),  # before its restart
        message(memory(0), 5, round=1),  # once more
        message(memory(3), 5, round=1),  # of nobody
    ],
)
def test_what_is_not_of_the_round_is_stale(make, stranger):
    rig = make()
    rig.step()
    rig.step(*(message(memory(i), 1, round=0) for i in (0, 1)))
    rig.step()
    rig.step(message(memory(0), 2, round=1), stranger)
    assert rig.count("stale_rows") == 5 and len(rig.learner.trained) == 1
    rig.step(message(memory(1), 2, round=1))
    assert len(rig.learner.trained) == 2 and rig.count("trained") == 2 + 4


@pytest.mark.parametrize("now", ["lost", (900, "joined")])
def test_a_lost_memory_voids_the_round_which_is_done_again(make, now):
    rig = make()
    rig.step()
    rig.step(message(memory(0), 3, round=0))
    rig.task.sees(**(ALL | {"memory_1": now}))
    rig.step()
    assert rig.count("stale_rows") == 3 and rig.learner.trained == []
    rig.task.sees(**(ALL | {"memory_1": (900, "joined")}))
    rig.step()
    assert rig.plan.round > 0 and rig.plan.version == 0
    number = rig.plan.round
    rig.step(message(memory(1), 4, round=0))  # of the void one, too late
    rig.step(
        message(memory(1, 900), 5, round=number), message(memory(0), 6, round=number)
    )
    assert rig.learner.trained == [[0, 1]]
    assert rig.count("trained") == 11 and rig.count("stale_rows") == 7


def test_a_memory_that_is_lost_behind_its_part_voids_nothing(make):
    rig = make()
    rig.step()
    rig.step(message(memory(1), 3, round=0))
    rig.task.sees(**(ALL | {"memory_1": "lost"}))
    rig.step(message(memory(0), 3, round=0))
    assert rig.learner.trained == [[0, 1]]


def test_a_round_without_rows_is_not_trained_on(make):
    rig = make()
    rig.step()
    rig.step(*(message(memory(i), 0, round=0) for i in (0, 1)))
    rig.step()
    assert rig.learner.trained == [] and rig.numbers() == [0, 1]
    assert rig.plan.version == 0


def test_a_part_without_rows_leaves_the_others(make):
    rig = make()
    rig.step()
    rig.step(message(memory(0), 0, round=0), message(memory(1), 2, round=0))
    assert rig.learner.trained == [[0, 1]] and rig.count("trained") == 2


def test_the_farewell_finishes_the_round_and_announces_the_last(make):
    rig = make()
    rig.step()
    rig.channel.messages.extend(message(memory(i), 2, round=0) for i in (0, 1))
    rig.learner.drain()
    assert rig.learner.trained == [[0, 1]]
    assert rig.plan.last and rig.plan.shares == {} and rig.numbers() == [0, 1]
    assert rig.log.count(("wake", "actor/0")) == 2
    assert rig.count("rounds") == 1


def test_the_farewell_gives_up_a_round_that_does_not_end(make):
    rig = make(shutdown_secs=0.2)
    rig.step()
    rig.channel.messages.append(message(memory(0), 3, round=0))
    rig.learner.drain()
    assert rig.learner.trained == [] and rig.plan.last
    assert rig.count("stale_rows") == 3


def test_the_farewell_before_the_first_round(make):
    rig = make()
    rig.learner._newest = -1, np.zeros(0)  # the run never ran
    rig.learner.drain()
    assert rig.plan.last and rig.numbers() == [0]
    assert ("wake", "memory/1") in rig.log
