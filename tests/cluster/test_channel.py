"""Both ends of a channel: opening, putting, closing."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time

import numpy as np
import pytest
from addresses import unused_address

from distrl.cluster import sessions
from distrl.cluster.channel import Address, ChannelClient
from distrl.core.errors import ChannelClosed, ConfigError, PeerUnreachable
from distrl.core.specs import ArraySpec

pytestmark = pytest.mark.timeout(60)


def test_messages_arrive_as_they_were_put(bench, make_message):
    owner, client = bench.owner(), bench.client()
    components = make_message(1, 3, 3)
    components[1][:] = [7, 8, 9]
    client.put(components, 10)
    assert owner.size == 1
    message = owner.spec.unpack(owner.get())
    assert (message.header.sequence, message.header.rows) == (1, 3)
    assert str(message.header.producer) == "actor/0"
    np.testing.assert_array_equal(message.record, [7, 8, 9])
    assert message.record.dtype == np.int64


def test_dtypes_travel_unchanged(servers, bench):
    record = {"image": ArraySpec((2, 2), "uint8"), "flag": ArraySpec((), "bool")}
    spec = bench.spec(record=record)
    bench.spec = lambda capacity=4: spec
    owner, client = bench.owner(), bench.client(spec)
    sent = {"image": np.full((1, 2, 2), 200, np.uint8), "flag": np.array([True])}
    client.put([np.zeros(9, np.int64), sent["flag"], sent["image"]], 10)
    received = spec.unpack(owner.get()).record
    for name, array in sent.items():
        assert received[name].dtype == array.dtype
        np.testing.assert_array_equal(received[name], array)


def test_a_closed_queue_is_drained_before_it_ends(bench, make_message):
    owner, client = bench.owner(), bench.client()
    for sequence in (1, 2):
        client.put(make_message(sequence, 1, sequence), 10)
    owner.close()
    with pytest.raises(ChannelClosed, match=f"{bench.name} of ps/0"):
        client.put(make_message(3, 1, 3), 10)
    assert [owner.get()[0][4] for _ in range(2)] == [1, 2]
    with pytest.raises(ChannelClosed, match=bench.name):
        owner.get()


def test_closing_wakes_a_blocked_get(bench):
    owner, ended = bench.owner(), []

    def get() -> None:
        try:
            owner.get()
        except ChannelClosed as error:
            ended.append(error)

    thread = threading.Thread(target=get, daemon=True)
    thread.start()
    owner.close()
    thread.join(10)
    assert len(ended) == 1


def test_lanes_are_queues_of_their_own(bench, make_message):
    spec = bench.spec()
    lanes = [dataclasses.replace(spec, lane=lane) for lane in ("0", "1")]
    owners = [bench.owner(spec=lane) for lane in lanes]
    for number, lane in enumerate(lanes):
        bench.client(lane).put(make_message(1, 1, 1 + number), 10)
    bench.client(lanes[1]).put(make_message(2, 1, 3), 10)
    assert [owner.size for owner in owners] == [1, 2]
    assert {owner.spec.name for owner in owners} == {spec.name}


def test_a_queue_on_the_server_of_another(bench, make_message):
    """Who reads reaches it over the network, and is the owner all the same."""
    owner, client = bench.owner(remote=True), bench.client()
    client.put(make_message(1, 1, 1), 10)
    assert owner.size == 1
    assert int(owner.get()[0][4]) == 1
    owner.close()
    with pytest.raises(ChannelClosed):
        owner.get()
    with pytest.raises(ChannelClosed):
        client.put(make_message(2, 1, 2), 10)


def test_a_put_into_a_full_queue_ends_with_its_time(bench, make_message):
    bench.owner(capacity=1)
    client = bench.client()
    client.put(make_message(1, 1, 1), 10)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=bench.name):
        client.put(make_message(2, 1, 2), 0.1)
    assert time.monotonic() - start < 5


def test_the_capacity_is_the_owners(bench, make_message):
    owner = bench.owner(capacity=2)
    client = bench.client(bench.spec(capacity=7))
    for sequence in (1, 2):
        client.put(make_message(sequence, 1, sequence), 10)
    with pytest.raises(TimeoutError):
        client.put(make_message(3, 1, 3), 0.1)
    assert owner.size == 2


def test_other_records_are_refused_at_opening_and_both_are_shown(bench, make_message):
    owner = bench.owner()
    with pytest.raises(ConfigError, match=r"ps/0.*int64\[\].*ours.*float32\[3\]"):
        bench.client(bench.spec(record=ArraySpec((3,), "float32")))
    bench.client().put(make_message(1, 1, 1), 10)  # and did no harm
    assert owner.size == 1


def test_another_run_is_not_taken(bench):
    bench.owner()
    with pytest.raises(PeerUnreachable, match=r"run run1, not to other"):
        bench.client(run_id="other", timeout=0.3)
    assert bench.client(run_id=None).readiness.run_id == "run1"


def test_a_channel_that_was_not_opened_is_not_created(bench):
    start = time.monotonic()
    with pytest.raises(PeerUnreachable, match=f"{bench.name} of ps/0.*not opened"):
        bench.client(timeout=0.3)
    assert time.monotonic() - start < 2.3
    assert bench.owner().size == 0


def test_a_client_waits_for_its_owner(bench):
    opened: list[ChannelClient] = []
    thread = threading.Thread(target=lambda: opened.append(bench.client(timeout=20)))
    thread.start()
    bench.owner()
    thread.join(20)
    assert len(opened) == 1


def test_a_new_incarnation_is_another_queue(bench, make_message):
    old, client = bench.owner(incarnation=1), bench.client()
    new, other = bench.owner(incarnation=2), bench.client()
    assert (client.readiness.incarnation, other.readiness.incarnation) == (1, 2)
    client.put(make_message(1, 1, 1), 10)
    assert (old.size, new.size) == (1, 0)


def test_opening_towards_nobody_fails_at_once(bench):
    address = Address("memory", 3, unused_address())
    start = time.monotonic()
    with pytest.raises(PeerUnreachable, match=f"nobody listens at {address.host}"):
        ChannelClient(bench.spec(), address, "run1", timeout=30.0)
    assert time.monotonic() - start < 5.0


@pytest.fixture
def mute():
    """The address of somebody who listens and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield Address("memory", 0, f"127.0.0.1:{listener.getsockname()[1]}")


def test_opening_towards_somebody_mute_is_bounded(bench, mute):
    start = time.monotonic()
    with pytest.raises(PeerUnreachable, match=mute.host):
        ChannelClient(bench.spec(), mute, "run1", timeout=0.5)
    assert time.monotonic() - start < 2.5


def test_opening_ends_soon_after_its_caller_stops(bench, mute):
    stopping = threading.Event()
    stopping.set()
    start = time.monotonic()
    with pytest.raises(PeerUnreachable, match=mute.host):
        ChannelClient(bench.spec(), mute, "run1", timeout=30.0, stopping=stopping)
    assert time.monotonic() - start < 5.0


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"memory/3: cannot listen on {address}"):
            sessions.start_server("memory", 3, address)


def test_the_port_of_another_server_is_in_use(servers):
    address, _ = servers[0]
    with pytest.raises(ConfigError, match=f"learner/0.*{address.host}"):
        sessions.start_server("learner", 0, address.host)
