"""The queue whose end wakes everybody."""

from __future__ import annotations

import threading

import pytest
from child_objects import wait_until

from distrl.core.closable_queue import ClosableQueue, QueueClosed

pytestmark = pytest.mark.timeout(60)

WAIT_SECS = 20.0  # how long a test waits for what must happen


class Boom(Exception):
    """What ends a queue here."""


def test_items_come_in_order_and_are_bounded():
    queue: ClosableQueue = ClosableQueue(2)
    queue.put(1)
    assert queue.offer(2) and not queue.offer(3)
    with pytest.raises(TimeoutError):
        queue.put(3, 0.01)
    assert len(queue) == 2
    assert [queue.get(), queue.get()] == [1, 2]
    with pytest.raises(TimeoutError):
        queue.get(0.01)


def test_a_put_waits_for_room_and_a_get_for_an_item():
    queue: ClosableQueue = ClosableQueue(1)
    got = []
    for first, second in (
        (lambda: [queue.put(i) for i in range(50)], lambda: got.append(queue.get())),
        (lambda: [got.append(queue.get()) for _ in range(50)], lambda: queue.put(7)),
    ):
        got.clear()
        waiting = threading.Thread(target=first)
        waiting.start()
        wait_until(lambda: queue._changed._waiters, WAIT_SECS, "a wait")
        for _ in range(50):
            second()
        waiting.join(WAIT_SECS)
        assert len(got) == 50


@pytest.mark.parametrize("call", ["put", "get"])
@pytest.mark.parametrize("error", [None, Boom()])
def test_the_first_close_wakes_who_waits_and_decides(call, error):
    queue: ClosableQueue = ClosableQueue(1)
    if call == "put":
        queue.put(0)
    raised = []

    def wait():
        try:
            queue.put(1) if call == "put" else queue.get()
        except (Boom, QueueClosed) as caught:
            raised.append(caught)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(queue._changed._waiters) == 3, WAIT_SECS, "three waits")
    queue.close(error)
    queue.close(Boom("later"))
    for thread in threads:
        thread.join(WAIT_SECS)
    wait()
    expected = QueueClosed if error is None else Boom
    assert len(raised) == 4 and all(type(each) is expected for each in raised)
    assert error is None or all(each is error for each in raised)
    assert not queue.offer(1) and len(queue) == 0
