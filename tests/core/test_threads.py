"""Threads whose ends and errors reach their owner."""

from __future__ import annotations

import threading
import time

import pytest

from distrl.core.threads import Deadline, StoppableThread, call_with_deadline

pytestmark = pytest.mark.timeout(30)


def fail(*_):
    raise RuntimeError("broken")


def test_a_thread_runs_until_it_is_stopped():
    thread = StoppableThread("t", lambda stopping: stopping.wait())
    assert not thread.alive
    assert thread.start() is thread
    assert thread.alive
    thread.stop()
    thread.join(10)
    assert not thread.alive and thread.error is None
    thread.check()


def test_an_error_reaches_check_and_join_each_time():
    thread = StoppableThread("t", fail).start()
    for look in (lambda: thread.join(10), thread.check, lambda: thread.join(10)):
        with pytest.raises(RuntimeError, match="broken"):
            look()


def test_even_an_exit_is_kept():
    thread = StoppableThread("t", lambda stopping: (_ for _ in ()).throw(SystemExit(3)))
    with pytest.raises(SystemExit):
        thread.start().join(10)


def test_join_gives_up_and_names_the_thread():
    thread = StoppableThread("slow one", lambda stopping: stopping.wait()).start()
    with pytest.raises(TimeoutError, match=r"slow one.*0\.01"):
        thread.join(0.01)
    thread.stop()
    thread.join(10)


@pytest.mark.parametrize("target", [fail, lambda stopping: None])
def test_who_is_woken_at_the_end_sees_the_end(target):
    seen, woken, holder = [], threading.Event(), {}
    constructed = threading.Event()

    def on_end() -> None:
        constructed.wait()
        seen.append((holder["thread"].alive, holder["thread"].error is not None))
        woken.set()

    holder["thread"] = StoppableThread("t", target, on_end).start()
    constructed.set()
    assert woken.wait(10)
    assert seen == [(False, target is fail)]


def test_a_call_within_its_deadline_returns_or_raises():
    assert call_with_deadline(lambda: 7, 10, "seven") == 7
    assert call_with_deadline(lambda: None, 10, "nothing") is None
    with pytest.raises(RuntimeError, match="broken"):
        call_with_deadline(fail, 10, "failing")


def test_a_call_that_raises_timeout_is_not_taken_for_a_late_one():
    def late() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="^mine$"):
        call_with_deadline(late, 10, "call")


def test_a_late_call_is_abandoned_and_named():
    release = threading.Event()
    with pytest.raises(TimeoutError, match=r"session to nobody.*0\.1 s"):
        call_with_deadline(release.wait, 0.05, "session to nobody")
    release.set()


def test_a_call_is_abandoned_once_its_caller_stops():
    release, stopping = threading.Event(), threading.Event()
    stopping.set()
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        call_with_deadline(release.wait, 20, "call", stopping)
    assert time.monotonic() - start < 5
    release.set()


def test_deadlines():
    later, past = Deadline(1000), Deadline(-1)
    assert not later.passed and 990 < later.remaining <= 1000
    assert past.passed and past.remaining == 0.0
    assert Deadline(0).passed
