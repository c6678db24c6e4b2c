"""The threads that publish and pull parameters, in front of stores that are fakes."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from distrl.cluster.parameter_threads import ParameterPublisher, ParameterPuller
from distrl.core.errors import PeerUnreachable

pytestmark = pytest.mark.timeout(60)


def filled(version: int, size: int) -> np.ndarray:
    return np.full(size, version % 251, np.uint8)


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
    assert store.written == []
    store.gate.set()
    publisher.stop(20)
    assert store.written == [1, 4]
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
    publisher._thread._thread.join(20)
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
