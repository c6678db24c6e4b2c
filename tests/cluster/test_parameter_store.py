"""Published parameters: whole, newest, never back."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest
from addresses import unused_address

from distrl.cluster.channel import Address
from distrl.cluster.parameter_store import ParameterStore
from distrl.cluster.parameter_threads import ParameterPublisher, ParameterPuller
from distrl.core.errors import PeerUnreachable

pytestmark = pytest.mark.timeout(60)
_numbers = itertools.count()


@pytest.fixture
def make_store(servers):
    """Stores of one name over two shards, for one writer or reader each."""
    name, stores = f"parameters{next(_numbers)}", []

    def make(run: int = 1, addresses=None) -> ParameterStore:
        addresses = addresses or [address for address, _ in servers]
        stores.append(ParameterStore(name, addresses, run))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def filled(version: int, size: int) -> np.ndarray:
    return np.full(size, version % 251, np.uint8)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 1000])
def test_what_is_written_is_read(make_store, size):
    parameters = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    make_store().write(3, parameters)
    reader = make_store()
    assert reader.version() == 3
    version, found = reader.read()
    assert version == 3 and found.dtype == np.uint8
    np.testing.assert_array_equal(found, parameters)


def test_sizes_may_change(make_store):
    writer, reader = make_store(), make_store()
    for version, size in enumerate((10, 3, 1001)):
        writer.write(version, filled(version, size))
        assert reader.read()[1].size == size


def test_before_any_write_there_is_nothing(make_store):
    assert make_store().version() == -1
    assert make_store().read() is None


def test_parameters_of_another_run_are_not_taken(make_store):
    make_store(run=1).write(5, filled(5, 10))
    assert make_store(run=2).read() is None
    assert make_store(run=1).read() is not None


def test_a_half_written_version_is_not_taken(make_store, servers):
    writer, reader = make_store(), make_store()
    writer.write(1, filled(1, 10))
    only_first = make_store(addresses=[servers[0][0]])
    only_first.write(2, filled(2, 5))  # the other shard still has version 1
    assert reader.read() is None


def test_versions_do_not_go_back(make_store):
    writer = make_store()
    writer.write(4, filled(4, 3))
    writer.write(4, filled(4, 3))
    with pytest.raises(ValueError, match="3 after version 4"):
        writer.write(3, filled(3, 3))


def test_no_read_is_torn_under_a_writer_at_full_speed(make_store):
    writer, reader, size = make_store(), make_store(), 40_000
    writer.write(0, filled(0, size))
    done = threading.Event()

    def write() -> None:
        for version in range(1, 400):
            writer.write(version, filled(version, size))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    versions = []
    while not done.is_set():
        found = reader.read(attempts=100)
        if found is not None:
            versions.append(found[0])
            assert np.all(found[1] == found[0] % 251) and found[1].size == size
    thread.join()
    assert reader.read()[0] == 399
    assert len(set(versions)) > 20
    assert versions == sorted(versions)


def test_nobody_at_the_address_is_named_in_bounded_time():
    address = Address("ps", 0, unused_address())
    store = ParameterStore("p", [address], run=1, timeout=1.0)
    start = time.monotonic()
    for call in (store.version, store.read, lambda: store.write(0, filled(0, 1))):
        with pytest.raises(PeerUnreachable, match=address.host):
            call()
    assert time.monotonic() - start < 6


def test_from_publisher_to_puller(make_store):
    publisher = ParameterPublisher(make_store())
    puller = ParameterPuller(make_store(), 0.001, 10)
    last = -1
    for version in range(30):
        publisher.publish(version, filled(version, 100))
        newest = puller.newest()
        if newest is not None:
            assert newest[0] > last and np.all(newest[1] == newest[0])
            last = newest[0]
    while last < 29:
        assert puller.wait(20)
        last = (puller.newest() or (last,))[0]
    publisher.stop(20)
    puller.stop(20)
