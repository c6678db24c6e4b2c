"""Errors and deaths of children reach the caller with their own type."""

import os
import pickle
import signal
import threading
import time
from functools import partial

import child_objects
import pytest
from child_objects import Counter, Locked, Picky

from distrl.core.child_process import (
    ChildDied,
    ChildFailed,
    RemoteTraceback,
)

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]


def test_an_error_has_its_type_and_the_remote_traceback(new_child):
    child = new_child()
    with pytest.raises(KeyError, match="'x'") as caught:
        child.call("raises", KeyError, "x").result()
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "in 'raises' of child 7" in str(cause) and "child_objects.py" in str(cause)
    with pytest.raises(AttributeError, match="no_such_method"):
        child.call("no_such_method").result()
    assert child.call("add", 1).result() == 1
    assert child.state == "ready"


@pytest.mark.parametrize(
    ("error", "args", "text"),
    [
        (Picky, (3, "picky"), "Picky: picky: 3"),
        (Locked, (), "Locked: locked"),
        (child_objects.Shifty, ("a",), "Shifty: a"),
    ],
)
def test_an_error_that_cannot_be_pickled(new_child, error, args, text):
    child = new_child()
    with pytest.raises(ChildFailed, match=f"child 7: {text}") as caught:
        child.call("raises", error, *args).result()
    assert "child_objects.py" in str(caught.value.__cause__)
    assert child.call("add", 1).result() == 1


def test_an_error_type_that_has_no_name(new_child):
    class Local(Exception):
        pass

    child = new_child()
    with pytest.raises(Local, match="here"):
        child.call("raises", Local, "here").result()


def test_what_cannot_be_pickled_is_named(new_child):
    child = new_child()
    with pytest.raises(TypeError, match="the result of 'unpicklable' cannot"):
        child.call("unpicklable").result()
    with pytest.raises(TypeError, match="child 7: an argument of 'echo' cannot"):
        child.call("echo", threading.Lock()).result()
    assert child.call("echo", lambda x: x + 1).result()(1) == 2
    assert child.call("add", 1).result() == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_object_may_leave_its_process(new_child, error, tmp_path):
    child = new_child(partial(Counter, note=str(tmp_path / "note")))
    pending = [child.call("raises", error, 3), child.call("add", 1)]
    with pytest.raises(ChildFailed, match=f"child 7: {error.__name__}: 3"):
        pending[0].result()
    with pytest.raises(ChildDied, match="child 7"):
        pending[1].result()
    assert (child.state, child.exitcode, child.alive) == ("failed", 1, False)
    assert (tmp_path / "note").read_text() == "closed\n"


def test_sigint_is_for_the_parent(new_child):
    assert new_child().call("send_signal", signal.SIGINT).result() == "lives"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("send_signal", signal.SIGKILL), "was ended by SIGKILL"),
        (("leave", 5), "has ended with exit code 5"),
    ],
)
def test_a_death_in_a_call(new_child, start_method, call, words):
    child, other = new_child(method=start_method), new_child(method=start_method)
    before = time.monotonic()
    promise = child.call(*call)
    with pytest.raises(
        ChildDied, match=rf"child 7 \(pid {child.pid}\) {words}"
    ) as caught:
        promise.result()
    assert time.monotonic() - before < 5.0
    assert "__main__" not in str(caught.value)
    assert (caught.value.pid, caught.value.exitcode) == (child.pid, child.exitcode)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert child.state == "failed"
    with pytest.raises(ChildDied, match=words):
        child.call("add", 1).result()
    assert other.call("add", 1).result() == 1


def test_a_death_is_seen_though_a_grandchild_holds_the_pipes(
    new_child, start_method, tmp_path
):
    note = tmp_path / "pid"
    child = new_child(partial(Counter, note=str(note)), method=start_method)
    before = time.monotonic()
    try:
        with pytest.raises(ChildDied, match="SIGKILL"):
            child.call("fork_and_die").result()
        assert time.monotonic() - before < 5.0
    finally:
        os.kill(int(note.read_text()), signal.SIGKILL)
