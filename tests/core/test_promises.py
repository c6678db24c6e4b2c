"""Calls are promises: any order, twice, late, collected."""

import os
import threading
import time

import pytest
from child_objects import IMPATIENT, wait_until

from distrl.core.child_process import (
    ChildDied,
    ChildLimits,
    WaitStopped,
    close_all,
    collect,
)

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]


def test_promises_in_any_order_and_twice(new_child):
    child = new_child()
    first, second = child.call("add", 1), child.call("add", 2)
    total, done = child.get("total"), child.set("total", 10)
    third = child.call("add", 5)
    assert third.result() == 15
    assert first.done and second.done
    assert [p.result() for p in (second, first, total, second)] == [3, 1, 3, 3]
    assert done.result() is None
    missing = child.get("nothing")
    lengths = set()
    for _ in range(3):
        with pytest.raises(AttributeError, match="nothing") as caught:
            missing.result()
        lengths.add(len(caught.traceback))
    assert len(lengths) == 1  # each raise starts anew


def test_done_does_not_wait(new_child):
    child = new_child()
    promise = child.call("sleep", 0.3)
    assert not promise.done
    wait_until(lambda: promise.done, 5.0, "the reply")


def test_a_promise_that_is_late_can_be_read_later(new_child):
    child = new_child()
    late, after = child.call("sleep", 0.4), child.call("add", 1)
    with pytest.raises(TimeoutError, match=r"child 7.*'sleep'.*0\.1 s"):
        late.result(0.1)
    assert after.result() == 1
    assert late.result() is None


def test_default_limit_of_a_call(new_child):
    child = new_child(limits=ChildLimits(30.0, 0.1, 0.3))
    with pytest.raises(TimeoutError, match=r"0\.1 s"):
        child.call("sleep", 20).result()


def test_long_messages_in_both_directions_at_once(new_child):
    child = new_child()
    value = os.urandom(3_000_000)
    promises = [child.call("echo", value) for _ in range(4)]
    assert all(p.result() == value for p in reversed(promises))


def test_a_call_to_a_busy_child_does_not_wait(new_child):
    child = new_child(limits=IMPATIENT)
    child.call("sleep", 20)
    before = time.monotonic()
    child.call("echo", bytes(3_000_000))
    assert time.monotonic() - before < 5.0


def test_collect_waits_for_all(new_child):
    children = [new_child(ready=False, name=f"child {i}") for i in range(4)]
    for child in children:
        child.start()
    calls = [("add", 1), ("raises", KeyError, "x"), ("send_signal", 9), ("add", 4)]
    promises = [c.call(*call) for c, call in zip(children, calls, strict=True)]
    outcomes = collect(promises, 20.0)
    assert [outcome.value for outcome in outcomes] == [1, None, None, 4]
    errors = [type(outcome.error) for outcome in outcomes]
    assert errors == [type(None), KeyError, ChildDied, type(None)]
    assert "child 2" in str(outcomes[2].error)
    again = collect([c.call("add", 1) for c in children], 20.0)
    assert [outcome.value for outcome in again] == [2, 1, None, 5]


def test_collect_is_bounded_in_all(new_child):
    children = [new_child(limits=IMPATIENT) for _ in range(3)]
    quick = children[2].call("add", 1)
    slow = [child.call("sleep", 20) for child in children]
    before = time.monotonic()
    outcomes = collect([*slow, quick], 0.5)
    assert time.monotonic() - before < 3.0
    assert all(isinstance(outcome.error, TimeoutError) for outcome in outcomes[:3])
    assert outcomes[3].value == 1
    close_all(children)


def test_the_stop_event_ends_a_wait(new_child):
    stop = threading.Event()
    child = new_child(stop=stop)
    promise = child.call("sleep", 1.0)
    timer = threading.Timer(0.1, stop.set)
    timer.start()
    before = time.monotonic()
    with pytest.raises(WaitStopped, match="child 7.*'sleep'"):
        promise.result()
    assert time.monotonic() - before < 0.9
    stop.clear()
    assert promise.result() is None
    timer.join()


def test_a_descriptor_of_its_own(new_child):
    child = new_child()
    reader, writer = os.pipe()
    busy = child.call("echo", bytes(1_000_000))  # the descriptor has to queue
    promise = child.send_descriptor("write", writer, "hello")
    os.close(writer)
    assert promise.result() == 5
    with os.fdopen(reader) as file:
        assert file.read() == "hello"
    assert len(busy.result()) == 1_000_000
    with pytest.raises(AttributeError):
        child.send_descriptor("nothing", 0).result()
    assert child.call("add", 1).result() == 1
