"""Published parameters: whole, newest, never back."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import portpicker
import pytest

from distrl.cluster.channel import Address
from distrl.cluster.parameter_store import (
    ParameterPublisher,
    ParameterPuller,
    ParameterStore,
)
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
    address = Address("ps", 0, f"127.0.0.1:{portpicker.pick_unused_port()}")
    store = ParameterStore("p", [address], run=1, timeout=1.0)
    start = time.monotonic()
    for call in (store.version, store.read, lambda: store.write(0, filled(0, 1))):
        with pytest.raises(PeerUnreachable, match=address.host):
            call()
    assert time.monotonic() - start < 6


# The publishing thread.


class FakeStore:
    """What is written is kept, once `gate` is set; what is read is looked up."""

    def __init__(self) -> None:
        self.entered, self.gate = threading.Semaphore(0), threading.Event()
        self.written: list[int] = []
        self.closed = False

    def write(self, version, parameters):
        self.entered.release()
        assert self.gate.wait(20)
        self.written.append(version)

    def close(self):
        self.closed = True


def test_a_publisher_keeps_only_the_newest():
    store = FakeStore()
    publisher = ParameterPublisher(store)
    publisher.publish(1, filled(1, 1))
    assert store.entered.acquire(timeout=20)  # version 1 is being written
    for version in (2, 3, 4):
        publisher.publish(version, filled(version, 1))
    assert publisher.flush(0.02) is False and publisher.published == -1
    store.gate.set()
    assert publisher.flush(20) is True
    assert store.written == [1, 4] and publisher.published == 4
    publisher.stop(20)
    assert store.closed


def test_a_publisher_writes_what_waits_before_it_ends():
    store = FakeStore()
    publisher = ParameterPublisher(store)
    publisher.publish(1, filled(1, 1))
    assert store.entered.acquire(timeout=20)
    publisher.publish(2, filled(2, 1))
    store.gate.set()
    publisher.stop(20)
    assert store.written == [1, 2]


def test_a_fenced_publisher_writes_nothing_and_says_so():
    store, asked = FakeStore(), []
    store.gate.set()

    def fence() -> None:
        asked.append(True)
        raise RuntimeError("fenced")

    publisher = ParameterPublisher(store, fence)
    publisher.publish(1, filled(1, 1))
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="fenced"):
        publisher.flush(30)
    assert time.monotonic() - start < 10  # the flush was woken
    with pytest.raises(RuntimeError, match="fenced"):
        publisher.publish(2, filled(2, 1))
    with pytest.raises(RuntimeError, match="fenced"):
        publisher.stop(20)
    assert store.written == [] and asked == [True] and store.closed


# The pulling thread.


class Shelf:
    """A store that shows (hint, found) one after the other, then the last for ever."""

    def __init__(self, *shown):
        self.shown, self.calls, self.end = list(shown), 0, threading.Event()
        self.closed = False

    def version(self):
        self.calls += 1
        if len(self.shown) == 1:
            self.end.set()
        self.found = self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]
        return self.found[0]

    def read(self):
        return self.found[1]

    def close(self):
        self.closed = True


def box(version):
    return version, filled(version, 3)


def test_versions_seen_by_a_puller_never_go_back():
    shelf = Shelf(
        (-1, None), (3, box(3)), (4, box(2)), (5, None), (6, box(6)), (1, box(1))
    )
    puller, seen = ParameterPuller(shelf, 0.001, 10), []
    while not seen or seen[-1] < 6:
        assert puller.wait(20)
        newest = puller.newest()
        if newest is not None:
            seen.append(newest[0])
    assert seen == sorted(set(seen)) and set(seen) <= {3, 6}
    calls = shelf.calls
    assert shelf.end.wait(20)
    while shelf.calls < calls + 3:  # it has seen the older one
        assert puller.wait(0.01) is False
    assert puller.newest() is None
    puller.stop(20)
    assert shelf.closed


def test_nothing_is_read_while_the_hint_stays():
    shelf = Shelf((3, box(3)), (3, ValueError("read again")))
    puller = ParameterPuller(shelf, 0.001, 10)
    assert shelf.end.wait(20)
    assert puller.newest()[0] == 3
    puller.stop(20)


def test_the_last_version_is_never_overlooked():
    shelf = Shelf(*((v, box(v)) for v in range(2000)))
    puller, last = ParameterPuller(shelf, 0.0, 10), -1
    while last < 1999:
        assert puller.wait(20)
        newest = puller.newest()
        if newest is not None:
            assert newest[0] > last
            last = newest[0]
    puller.stop(20)


class SlowToFail:
    """A ps that takes its time to be unreachable."""

    def __init__(self):
        self.calls, self.pause = 0, threading.Event()

    def version(self):
        self.calls += 1
        self.pause.wait(0.2)
        raise PeerUnreachable("ps/0 is gone")

    def close(self):
        pass


def test_a_puller_gives_up_after_its_patience_however_long_a_call_takes():
    store = SlowToFail()
    puller = ParameterPuller(store, period_secs=0.001, error_after_secs=0.5)
    start = time.monotonic()
    assert puller.wait(20) is True  # something to hear
    with pytest.raises(PeerUnreachable, match="ps/0 is gone"):
        puller.newest()
    assert time.monotonic() - start < 5
    assert 2 <= store.calls <= 4
    with pytest.raises(PeerUnreachable):
        puller.stop(20)


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
    assert publisher.flush(20)
    while last < 29:
        assert puller.wait(20)
        last = (puller.newest() or (last,))[0]
    publisher.stop(20)
    puller.stop(20)
