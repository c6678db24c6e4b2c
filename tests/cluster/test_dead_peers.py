"""Tasks of other processes that are stopped, killed and started again.

The tests share their two children, which take seconds to load, and run in this order.
"""

from __future__ import annotations

import dataclasses
import signal
import time

import numpy as np
import pytest
from addresses import unused_address
from serving_child import CHANNEL, RUN

from distrl.cluster.channel import Address, ChannelClient, ChannelOwner
from distrl.cluster.messages import Producer
from distrl.cluster.parameter_store import ParameterStore
from distrl.cluster.proxy_sender import ProxySender, SenderSettings
from distrl.core.counters import Counters
from distrl.core.errors import PeerUnreachable

pytestmark = pytest.mark.timeout(120)  # the children load for 25 s on a busy machine


@pytest.fixture(scope="module")
def pair(start_child):
    """A task that serves, and the one that will take its place."""
    host = unused_address()
    first, second = start_child(host, 1), start_child(host, 2)
    first.serve()
    return Address("memory", 0, host), first, second


@pytest.fixture
def make_store(pair):
    stores = []

    def make(name: str) -> ParameterStore:
        stores.append(ParameterStore(name, [pair[0]], run=1, timeout=1.0))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def filled(value):
    return np.full(5, value, np.uint8)


def retried(call):
    """The first answer of a peer that comes back."""
    end = time.monotonic() + 20
    while True:
        try:
            return call()
        except PeerUnreachable:
            if time.monotonic() > end:
                raise


def assert_unreachable(call, host):
    """In 1 s, and 1 s more for closing the session; the rest is slack."""
    start = time.monotonic()
    with pytest.raises(PeerUnreachable, match=host):
        call()
    assert time.monotonic() - start < 10.0


def test_a_queue_on_a_stopped_tasks_server_is_bounded(pair):
    address, first, _ = pair
    lane = dataclasses.replace(CHANNEL, lane="own")
    owner = ChannelOwner(lane, address, None, RUN, 1, timeout=1.0)
    first.signal(signal.SIGSTOP)
    try:
        for call in (
            lambda: ChannelOwner(lane, address, None, RUN, 1, timeout=1.0),
            lambda: owner.size,
            owner.close,
        ):
            assert_unreachable(call, address.host)
    finally:
        first.signal(signal.SIGCONT)


def test_calls_towards_a_stopped_task_are_bounded(pair, make_store):
    address, first, _ = pair
    store, fresh = make_store("a"), make_store("a")
    store.write(1, filled(1))
    first.signal(signal.SIGSTOP)
    try:
        for call in (
            lambda: ChannelClient(CHANNEL, address, RUN, timeout=1.0),
            store.read,
            fresh.read,
            lambda: store.write(2, filled(2)),
        ):
            assert_unreachable(call, address.host)
    finally:
        first.signal(signal.SIGCONT)
    assert retried(store.version) in (1, 2)  # what timed out may have arrived
    store.write(3, filled(3))
    assert fresh.read()[0] == 3


def put(sender, *values):
    assert sender.put(np.array(values, np.int64), len(values), 20)


def test_everything_goes_on_with_the_task_that_comes_back(pair, make_store):
    address, first, second = pair
    store, counters = make_store("b"), Counters()
    settings = SenderSettings(capacity=8, max_message_bytes=0, put_timeout_secs=1.0)
    producer = Producer("actor", 0, 1)
    sender = ProxySender(CHANNEL, address, RUN, producer, counters, settings)
    store.write(5, filled(5))
    put(sender, 1, 2, 3)
    put(sender, 4)
    assert [first.line(), first.line()] == ["1 2 3", "4"]  # both are in its books
    assert sender.flush(20)

    assert first.kill() == []
    put(sender, 5, 6)  # is bound to the dead one
    put(sender, 7)
    assert_unreachable(store.read, address.host)

    second.serve()
    assert second.line() == "7"
    put(sender, 8, 9)
    assert second.line() == "8 9"
    sender.end()
    sender.join(20)
    assert retried(store.read) is None  # a new ps is blank
    store.write(6, filled(6))
    assert store.read()[0] == 6

    assert second.kill() == []
    assert counters.get("sent/values") == 9
    assert counters.get("lost/values") == 0
    tried = sorted(sender.rows_tried().values())
    assert tried == [(3, 0), (6, 2)]  # 2 may have reached the dead one
    # … and 4 + 3 rows were received by the first and by the second.
