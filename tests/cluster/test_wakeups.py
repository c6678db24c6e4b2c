"""Wake-ups: there is news, at most twice, and nobody waits for long."""

import itertools
import threading
import time

import portpicker
import pytest

from distrl.cluster.channel import Address
from distrl.cluster.wakeups import Wakeups
from distrl.core.errors import PeerUnreachable

pytestmark = pytest.mark.timeout(60)

_numbers = itertools.count()


@pytest.fixture
def make(servers):
    """Ends of queues on the first server; a new name unless one is given."""
    made = []

    def ends(name=None, address=servers[0][0], timeout=10.0):
        name = name or f"wakeups{next(_numbers)}"
        made.append(Wakeups(name, address, timeout))
        return made[-1]

    yield ends
    for end in made:
        end.close()


def number_waiting(end):
    count = 0
    while end.wait(0.3):
        count += 1
    return count


def test_a_wake_up_before_the_wait_is_there(make):
    make("before").wake()
    waiter = make("before")
    assert waiter.wait(10.0)
    assert not waiter.wait(0.1)


def test_a_wait_without_news_ends_in_time(make):
    waiter = make()
    assert not waiter.wait(0.1)  # opens the session
    began = time.monotonic()
    assert not waiter.wait(0.3)
    assert 0.2 < time.monotonic() - began < 2.0


def test_a_wake_up_ends_a_wait(make):
    waker, waiter = make("ends"), make("ends")
    assert not waiter.wait(0.05)
    waker.wake()
    assert waiter.wait(1.0)
    found = []
    thread = threading.Thread(target=lambda: found.append(waiter.wait(20.0)))
    thread.start()
    waker.wake()
    thread.join(15.0)
    assert found == [True]


def test_waking_never_waits_and_little_is_kept(make):
    waker = make("full")
    began = time.monotonic()
    for _ in range(20):
        waker.wake()
    assert time.monotonic() - began < 5.0
    assert 1 <= number_waiting(make("full")) <= 2


def test_names_do_not_meet(make):
    one, other = make(), make()
    one.wake()
    assert not other.wait(0.2)
    assert one.wait(1.0)


def test_nobody_there(make):
    address = Address("ps", 0, f"127.0.0.1:{portpicker.pick_unused_port()}")
    end = make(address=address, timeout=2.0)
    for call in (end.wake, lambda: end.wait(1.0)):
        began = time.monotonic()
        with pytest.raises(PeerUnreachable, match=address.host):
            call()
        assert time.monotonic() - began < 6.0


def test_a_closed_end_opens_again(make):
    end = make()
    end.wake()
    end.close()
    assert end.wait(5.0)
