"""A task, its channels and the board of rounds, without threads, servers or time."""

from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from distrl.cluster.channel import Address
from distrl.cluster.messages import DATA, Message, Producer
from distrl.core.counters import Counters
from distrl.core.specs import ArraySpec
from distrl.lifecycle.settings import Run, Timeouts
from distrl.lifecycle.view import NOTHING_YET


class Record(NamedTuple):
    """What these shares are made of."""

    value: Any
    collect_secs: Any


RECORD = Record(ArraySpec((), "int64"), ArraySpec((), "float64"))


def message(producer, rows, round, version=0):
    """Of `rows` rows whose values are the producer's index."""
    header = producer.header(DATA, 1, rows, rows, version, round)
    values = np.full(rows, producer.task, np.int64)
    return Message(header, Record(values, np.array([0.5])))


class FakeReceiver:
    """Gives what a test has put into `messages`."""

    def __init__(self, spec):
        self.spec = spec
        self.messages: deque = deque()
        self.ended: set = set()
        self.late = 0  # messages that `get` does not find yet, though they are there

    def get(self, timeout=0.0):
        return self.messages.popleft() if self.messages else None

    @property
    def size(self):
        return len(self.messages) + self.late

    def has_ended(self, producer):
        return producer in self.ended


class FakeSender:
    """Keeps what is put while there is room."""

    def __init__(self, spec):
        self.spec, self.room, self.sent = spec, True, []

    def put(self, record, rows, timeout, version=-1, round=-1, owner=0):
        self.owner = owner
        if self.room:
            self.sent.append((round, version, rows, record))
        return self.room


class FakeTask:
    """A member of a run whose view is whatever the test says."""

    def __init__(self, job, run_dir, num_actors=2, num_memories=2, **timeouts):
        self.producer, self.index, self.run_dir = Producer(job, 0, 1), 0, run_dir
        memories = tuple(f"m:{index}" for index in range(num_memories))
        self.cluster = SimpleNamespace(num_actors=num_actors, memory=memories)
        self.timeouts = Timeouts(**timeouts)
        self.restart, self.resume = 0, False
        self.run = Run()
        self.patience_secs = self.timeouts.heartbeat_secs
        self.counters, self.gauges, self.view = Counters(), {}, NOTHING_YET
        self.timer = SimpleNamespace(measure=lambda state: nullcontext())
        self.heartbeat = SimpleNamespace(
            progress=0, check=lambda: None, dump=None, say=lambda **words: 1
        )
        self.wakeup = SimpleNamespace(set=lambda: None)
        self.receivers, self.senders = [], []

    def sees(self, **states):
        """What it knows of others: `actor_0="joined"` or `actor_0=(incarnation,
        state)`; incarnations are 100 + index."""
        members = {}
        for name, state in states.items():
            job, index = name.split("_")
            entry = (100 + int(index), state) if isinstance(state, str) else state
            members[f"{job}/{index}"] = [entry[0], 1, entry[1], ""]
        content = vars(NOTHING_YET) | {"members": members}
        self.view = type(NOTHING_YET)(content)

    def wait_for_news(self, timeout):
        pass

    def address(self, job, index):
        return Address(job, index, f"{job}:{index}")

    def receiver(self, spec, capacity):
        self.receivers.append(FakeReceiver(spec))
        return self.receivers[-1]

    def sender(self, spec, to, settings):
        self.senders.append(FakeSender(spec))
        return self.senders[-1]

    def drain(self, receiver, job, take, meanwhile=None):
        while receiver.messages:
            take(receiver.get())

    def end_senders(self):
        pass


class FakeStore:
    """A part of which the first byte is the version."""

    def write_others(self, version, parameters):
        return np.array([version, *parameters], np.int64)

    def close(self):
        pass


class FakeBoard:
    """Writes down plans and wake-ups, in their order, into `log`."""

    def __init__(self):
        self.log, self.plans = [], []

    def write(self, plan, part, actors=(), memories=()):
        self.plans.append(plan)
        self.log += [("parameters", int(part[0])), ("plan", plan.round)]
        self.log += [("wake", task) for task in (*actors, *memories)]

    def close(self):
        pass


class FakeFollower:
    """Gives the plans that a test puts into `plans`."""

    def __init__(self, *arguments):
        self.plans: deque = deque()

    def take(self):
        plan = self.plans.popleft() if self.plans else None
        return None if plan is None else SimpleNamespace(plan=plan, parameters=None)

    def stop(self, timeout):
        pass
