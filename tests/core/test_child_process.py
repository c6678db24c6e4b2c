"""Children of any factory and start method; starts that fail."""

import os
import signal
import sys
import threading
import time
from functools import partial

import child_objects
import pytest
from child_objects import Counter, Picky, Plant, is_gone

from distrl.core.child_process import (
    ChildDied,
    ChildFailed,
    ChildLimits,
    ChildProcess,
)

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]


def factories():
    start = 3
    return {
        "function": (child_objects.counter_at_zero, 0),
        "lambda": (lambda: Counter(start), 3),
        "partial": (partial(Counter, start=4), 4),
        "class": (Counter, 0),
        "bound method": (Plant(5).make, 5),
    }


@pytest.mark.parametrize(
    "kind", ["function", "lambda", "partial", "class", "bound method"]
)
def test_any_factory_with_any_start_method(new_child, start_method, kind):
    factory, start = factories()[kind]
    child = new_child(factory, method=start_method, ready=False)
    assert (child.state, child.pid, child.alive) == ("new", None, False)
    child.start()
    assert child.state == "starting"
    described = child.wait_ready()
    assert described == {"start": start, "pid": child.pid} == child.wait_ready()
    assert child.pid != os.getpid()
    assert (child.state, child.alive, child.exitcode) == ("ready", True, None)
    assert child.call("add", 2, times=10).result() == start + 20
    child.close()
    assert (child.state, child.alive, child.exitcode) == ("closed", False, 0)


def test_what_cannot_be_started(monkeypatch):
    with pytest.raises(TypeError, match=r"a factory, got a non-callable <.*Counter"):
        ChildProcess(Counter(), "child 7")
    with pytest.raises(TypeError, match="child 7: the factory cannot be pickled"):
        ChildProcess(partial(Counter, threading.Lock()), "child 7")
    with pytest.raises(ValueError, match="got 'thread'"):
        ChildProcess(Counter, "child 7", "thread")
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    with pytest.raises(ValueError, match="use 'spawn' or 'forkserver'"):
        ChildProcess(Counter, "child 7", "fork")


def test_an_object_need_not_describe_or_close_itself(new_child):
    child = new_child(dict, ready=False)
    child.start()
    assert child.wait_ready() is None
    assert child.call("setdefault", 1, 2).result() == 2


def test_calls_before_the_start_and_after_the_end_are_refused(new_child):
    child = new_child(ready=False)
    for use in (lambda: child.call("add", 1), child.wait_ready):
        with pytest.raises(RuntimeError, match="child 7.*'new'"):
            use()
    child.start()
    with pytest.raises(RuntimeError, match="child 7: start"):
        child.start()
    child.close()
    for use in (lambda: child.get("total"), child.wait_ready, child.start):
        with pytest.raises(RuntimeError, match="child 7.*'closed'"):
            use()


def test_mpi_variables_stay_with_the_parent(new_child, monkeypatch, start_method):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("PMI_RANK", "3")
    child = new_child(method=start_method)
    for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        assert child.call("environment", variable).result() is None
        assert variable not in child.call("first_environment").result()
        assert os.environ[variable] == "3"


def test_the_constructors_error_has_its_type(new_child, start_method):
    factory = partial(child_objects.failing_factory, KeyError, "x")
    child = new_child(factory, method=start_method, ready=False)
    child.start()
    for _ in range(2):
        with pytest.raises(KeyError, match="x") as caught:
            child.wait_ready()
    assert "child_objects.py" in str(caught.value.__cause__)
    assert child.state == "failed"
    assert not child.alive


@pytest.mark.parametrize(
    ("factory", "error", "words"),
    [
        (
            partial(child_objects.failing_factory, Picky, 1, "a"),
            ChildFailed,
            "Picky: a",
        ),
        (partial(sys.exit, 3), ChildFailed, "SystemExit: 3"),
        (
            partial(child_objects.exiting_factory, 3),
            ChildDied,
            "exit code 3 .*__main__",
        ),
        (child_objects.killed_factory, ChildDied, "SIGKILL .*__main__"),
    ],
)
def test_a_constructor_that_does_not_succeed(new_child, factory, error, words):
    child = new_child(factory, ready=False)
    child.start()
    with pytest.raises(error, match=f"child 7.*{words}"):
        child.wait_ready()
    assert child.state == "failed"


def test_a_killed_child_does_not_hang_a_serial_start(new_child, start_method):
    new_child(method=start_method)
    factory = partial(Counter, note="x" * 3_000_000)  # more than a pipe takes
    child = new_child(factory, method=start_method, ready=False)
    child.start()
    os.kill(child.pid, signal.SIGKILL)
    before = time.monotonic()
    with pytest.raises(ChildDied, match="SIGKILL"):
        child.wait_ready()
    assert time.monotonic() - before < 5.0
    new_child(method=start_method)


def test_a_constructor_that_hangs(new_child):
    limits = ChildLimits(startup_secs=0.5, close_secs=0.3)
    child = new_child(child_objects.hanging_factory, ready=False, limits=limits)
    child.start()
    with pytest.raises(TimeoutError, match=r"child 7.*'start'.*0\.5 s"):
        child.wait_ready()
    before = time.monotonic()
    child.close()
    assert time.monotonic() - before < 2.0
    assert is_gone(child.pid)
