"""Children under the start method "inline": the same calls, and no process."""

import logging
import os
import threading
import time
import weakref
from functools import partial

import child_objects
import pytest
from child_objects import BadClose, Counter, Holdings

from distrl.core.child_process import (
    INLINE,
    ChildFailed,
    RemoteTraceback,
    close_all,
    wait_for_news,
)

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]


@pytest.fixture
def inline(new_child):
    return partial(new_child, method=INLINE)


def test_the_object_lives_here(inline):
    before = Holdings()
    child = inline(lambda: Counter(3), ready=False)
    assert (child.state, child.pid) == ("new", None)
    child.start()
    assert child.wait_ready() == {"start": 3, "pid": os.getpid()}
    assert (child.state, child.pid, child.alive) == ("ready", None, False)
    assert not Holdings().added_since(before)
    with pytest.raises(RuntimeError, match="child 7: start"):
        child.start()


def test_calls_are_done_at_once_and_in_order(inline):
    child = inline()
    promises = [child.call("add", 1), child.call("add", 2, times=10), child.get("note")]
    assert all(promise.settled for promise in promises)
    child.set("total", 5).result()
    assert [promise.result() for promise in promises] == [1, 21, ""]
    assert child.get("total").result() == 5


def test_nothing_is_copied(inline):
    value, made = threading.Lock(), []

    def factory():
        made.append(value)
        return Counter()

    assert inline(factory).call("echo", value).result() is value
    assert made == [value]


def test_no_limit_is_kept(inline):
    promise = inline().call("sleep", 0.05)
    assert promise.result(timeout=0.0) is None
    assert wait_for_news([inline()], 30.0) is True


def test_errors_come_out_of_their_promises(inline):
    child = inline()
    promise = child.call("raises", KeyError, "x")
    for _ in range(2):
        with pytest.raises(KeyError, match="'x'") as caught:
            promise.result()
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "in 'raises' of child 7" in str(cause)
    assert "child_objects.py" in str(cause)
    with pytest.raises(AttributeError, match="no_such_method"):
        child.call("no_such_method").result()
    assert child.call("add", 1).result() == 1 and child.state == "ready"


def test_an_object_may_leave(inline, tmp_path):
    """As it would leave its process: it is closed, and has failed."""
    note = tmp_path / "note"
    child = inline(partial(Counter, note=str(note)))
    left, late = child.call("raises", SystemExit, 3), child.call("add", 1)
    with pytest.raises(ChildFailed, match="child 7: SystemExit: 3"):
        left.result()
    with pytest.raises(ChildFailed, match="child 7 has failed before"):
        late.result()
    assert child.state == "failed" and note.read_text() == "closed\n"
    child.close()
    assert child.state == "closed" and note.read_text() == "closed\n"


def test_an_interrupt_is_for_this_process(inline):
    with pytest.raises(KeyboardInterrupt):
        inline().call("raises", KeyboardInterrupt)


def test_a_constructor_that_fails(inline):
    child = inline(partial(child_objects.failing_factory, KeyError, "x"), ready=False)
    child.start()
    with pytest.raises(KeyError, match="x") as caught:
        child.wait_ready()
    assert "while it was made" in str(caught.value.__cause__)
    assert child.state == "failed"
    reader, writer = os.pipe()
    for promise in (child.call("add", 1), child.send_descriptor("write", writer, "a")):
        with pytest.raises(ChildFailed, match="child 7 has failed before"):
            promise.result()
    os.close(reader)
    os.close(writer)


def test_a_descriptor_is_the_objects_own(inline):
    reader, writer = os.pipe()
    assert inline().send_descriptor("write", writer, "abc").result() == 3
    os.close(writer)
    assert os.read(reader, 10) == b"abc"
    assert os.read(reader, 10) == b""  # nobody has the other end any more
    os.close(reader)


def test_closing_tells_the_object_once(inline, tmp_path):
    note = tmp_path / "note"
    child = inline(partial(Counter, note=str(note)))
    child.close()
    child.close()
    assert note.read_text() == "closed\n" and child.state == "closed"
    with pytest.raises(RuntimeError, match="child 7.*'closed'"):
        child.call("add", 1)


def test_an_object_that_cannot_be_described_is_closed(inline, tmp_path):
    note = tmp_path / "note"

    class Shy(Counter):
        def describe(self):
            raise ArithmeticError("shy")

    child = inline(partial(Shy, note=str(note)), ready=False)
    child.start()
    with pytest.raises(ArithmeticError, match="shy"):
        child.wait_ready()
    assert note.read_text() == "closed\n"
    child.close()
    assert note.read_text() == "closed\n"


def test_an_error_in_close_is_logged_and_the_others_are_closed(
    inline, new_child, tmp_path, caplog
):
    class Leaves(Counter):
        def close(self):
            raise SystemExit

    note = tmp_path / "note"
    good = inline(partial(Counter, note=str(note)))
    children = [inline(BadClose), inline(Leaves), new_child(), good]
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, logger="absl"):
        close_all(children)
    assert "child 7: its close() raised ArithmeticError('cannot close')" in caplog.text
    assert note.read_text() == "closed\n"
    assert time.monotonic() - started < 10.0


def test_a_closed_object_is_let_go(inline):
    child = inline()
    held = weakref.ref(child._link._object)
    assert held() is not None
    child.close()
    assert held() is None
