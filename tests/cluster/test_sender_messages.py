"""What a sender makes of its items, in front of a client that is a fake."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from distrl.cluster import proxy_sender
from distrl.cluster.messages import END
from distrl.core.errors import ChannelClosed

pytestmark = pytest.mark.timeout(60)


def put(sender, *values, timeout=20.0, **more):
    return sender.put(np.array(values, np.int64), len(values), timeout, **more)


class FakeClient:
    """Opens once `gate` is set; keeps what is put, or fails in its place."""

    def __init__(self, spec, failure=None):
        self.spec, self.failure = spec, failure
        self.opening, self.gate = threading.Event(), threading.Event()
        self.messages, self.closed_for = [], ()
        self.readiness = self
        self.incarnation, self.owner = 1, "memory/0"

    def __call__(self, *_):
        self.opening.set()
        assert self.gate.wait(20)
        if self.failure is not None:
            raise self.failure
        return self

    def put(self, components, timeout):
        message = self.spec.unpack(components)
        if message.header.sequence in self.closed_for:
            raise ChannelClosed("closed")
        self.messages.append(message)

    def close(self):
        pass

    @property
    def values(self):
        return [m.record.tolist() for m in self.messages if m.header.kind != END]


def faked(bench, monkeypatch, failure=None):
    client = FakeClient(bench.spec(), failure)
    monkeypatch.setattr(proxy_sender, "ChannelClient", client)
    return client


# Joining items to messages.


def test_items_are_joined_up_to_a_size(bench, monkeypatch):
    client = faked(bench, monkeypatch)
    sender = bench.sender(capacity=20, max_message_bytes=4 * 8)
    put(sender, 0)
    assert client.opening.wait(20)  # the first is on its way alone
    for values in [(1, 1), (2, 2), (3,), (4, 4, 4, 4, 4, 4), (5,), (6,), (7, 7, 7)]:
        put(sender, *values)
    client.gate.set()
    assert sender.flush(20)
    assert client.values == [
        [0],
        [1, 1, 2, 2],
        [3],
        [4, 4, 4, 4, 4, 4],  # too large by itself: sent alone
        [5, 6],
        [7, 7, 7],
    ]
    headers = [message.header for message in client.messages]
    assert [h.sequence for h in headers] == [1, 2, 3, 4, 5, 6]
    assert [h.rows for h in headers] == [1, 4, 1, 6, 2, 3]
    assert [h.total_rows for h in headers] == [1, 5, 6, 12, 14, 17]


def test_items_of_different_versions_or_rounds_stay_apart(bench, monkeypatch):
    client = faked(bench, monkeypatch)
    sender = bench.sender(capacity=20, max_message_bytes=1 << 20)
    put(sender, 0)
    assert client.opening.wait(20)
    for version, round in [(1, 1), (1, 1), (2, 1), (2, 2), (1, 1), (1, 1)]:
        put(sender, 10 * version + round, version=version, round=round)
    client.gate.set()
    assert sender.flush(20)
    assert client.values == [[0], [11, 11], [21], [22], [11, 11]]
    tags = [(m.header.version, m.header.round) for m in client.messages]
    assert tags == [(-1, -1), (1, 1), (2, 1), (2, 2), (1, 1)]


def test_an_item_waits_for_company(bench, monkeypatch):
    client = faked(bench, monkeypatch)
    client.gate.set()
    sender = bench.sender(capacity=3, max_message_bytes=1 << 20, max_delay_secs=60.0)
    for value in range(3):
        put(sender, value)
    assert sender.flush(20)
    assert client.values == [[0, 1, 2]]


def test_an_item_that_fills_a_message_waits_for_nobody(bench, monkeypatch):
    client = faked(bench, monkeypatch)
    client.gate.set()
    sender = bench.sender(capacity=3, max_message_bytes=16, max_delay_secs=60.0)
    put(sender, 1, 1)
    assert sender.flush(20)
    put(sender, 2)
    sender.end()  # and the end waits for nobody either
    sender.join(20)
    assert client.values == [[1, 1], [2]]
    assert client.messages[-1].header.kind == END


# What goes wrong.


def test_rows_that_may_be_lost_are_in_the_totals_of_later_messages(bench, monkeypatch):
    """So the receiver sees the gap, if they are."""
    client = faked(bench, monkeypatch)
    client.closed_for = (2,)
    client.gate.set()
    sender = bench.sender()
    for values in [(1, 1), (2, 2, 2), (3,)]:
        put(sender, *values)
    sender.end()
    sender.join(20)
    headers = [message.header for message in client.messages]
    assert [(h.sequence, h.total_rows) for h in headers] == [(1, 2), (3, 6), (4, 6)]
    assert bench.books() == {"sent": 6, "received": 0, "lost": 3, "duplicates": 0}


def test_what_is_for_a_successor_does_not_go_to_the_dead_owner(bench, monkeypatch):
    """Though the connection to that one seems to be there still."""
    old, new = (FakeClient(bench.spec()) for _ in range(2))
    new.incarnation = 5
    opened = iter([old, old, new])  # the second time the successor is not there yet
    monkeypatch.setattr(proxy_sender, "ChannelClient", lambda *_: next(opened))
    sender = bench.sender()
    put(sender, 1, owner=1)
    assert sender.flush(20)
    put(sender, 2, owner=5)
    put(sender, 3, owner=4)  # a newer one will do
    assert sender.flush(20)
    assert (old.values, new.values) == ([[1]], [[2], [3]])
    assert sender.rows_tried() == {"memory/0/1": (1, 0), "memory/0/5": (2, 0)}


def test_items_for_different_owners_are_not_joined(bench, monkeypatch):
    client = faked(bench, monkeypatch)
    sender = bench.sender(capacity=20, max_message_bytes=1 << 10)
    put(sender, 0)
    assert client.opening.wait(20)
    for value, owner in ((1, 0), (2, 1), (3, 1)):
        put(sender, value, owner=owner)
    client.gate.set()
    assert sender.flush(20)
    assert client.values == [[0], [1], [2, 3]]


def test_an_error_wakes_a_put_that_is_blocked(bench, monkeypatch):
    client = faked(bench, monkeypatch, RuntimeError("broken"))
    sender = bench.sender(capacity=1)
    assert put(sender, 1) and client.opening.wait(20)
    assert put(sender, 2)
    start, errors = time.monotonic(), []

    def blocked() -> None:
        try:
            put(sender, 3, timeout=30)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    while not sender._changed._waiters:  # until it is blocked
        thread.join(0.01)
    client.gate.set()
    thread.join(20)
    assert [str(e) for e in errors] == ["broken"]
    assert time.monotonic() - start < 10
