"""Waiting for whichever child says something first."""

import time

import pytest
from child_objects import IMPATIENT, Counter

from distrl.core.child_process import ChildDied, ChildProcess, wait_for_news

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]


def test_nothing_is_said(new_child):
    children = [new_child(), new_child()]
    started = time.monotonic()
    assert wait_for_news(children, 0.2) is False
    assert 0.19 < time.monotonic() - started < 2.0
    assert wait_for_news(children, 0.0) is False


def test_one_of_several_replies(new_child):
    children = [new_child(limits=IMPATIENT) for _ in range(3)]
    slow = children[0].call("sleep", 60.0)
    quick = children[2].call("sleep", 0.1)
    started = time.monotonic()
    assert wait_for_news(children, 30.0) is True
    assert 0.05 < time.monotonic() - started < 20.0
    assert quick.done and not slow.done
    assert wait_for_news(children, 0.0) is False  # it was taken in


def test_one_of_several_ends(new_child):
    children = [new_child(), new_child()]
    promise = children[1].call("leave", 3)
    assert wait_for_news(children, 30.0) is True
    with pytest.raises(ChildDied, match="exit code 3"):
        promise.result()
    started = time.monotonic()
    assert wait_for_news(children, 30.0) is True  # and it will say no more
    assert time.monotonic() - started < 10.0


def test_of_those_that_say_nothing_any_more_nobody_waits(new_child):
    child, closed = new_child(), new_child()
    closed.close()
    started = time.monotonic()
    for silent in (closed, ChildProcess(Counter, "never started")):
        assert wait_for_news([child, silent], 30.0) is True
    assert time.monotonic() - started < 10.0


def test_a_long_request_goes_on_meanwhile(new_child):
    """It is longer than what the socket takes at once."""
    child = new_child()
    promise = child.call("echo", b"x" * 20_000_000)
    started = time.monotonic()
    while not promise.done:
        assert wait_for_news([child], 10.0) is True
    assert promise.result() == b"x" * 20_000_000
    assert time.monotonic() - started < 9.0
