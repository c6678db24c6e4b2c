"""Closing: in every state, bounded, and nothing stays."""

import atexit
import copy
import gc
import multiprocessing.util
import os
import pickle
import signal
import socket
import time
from functools import partial

import child_objects
import pytest
from child_objects import (
    IMPATIENT,
    LIMITS,
    Counter,
    is_gone,
)

from distrl.core.child_process import (
    ChildDied,
    ChildFailed,
    ChildLimits,
    ChildProcess,
    close_all,
)

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]


def test_closing_tells_the_object(new_child, tmp_path, start_method):
    note = tmp_path / "note"
    child = new_child(partial(Counter, note=str(note)), method=start_method)
    child.close()
    child.close()
    assert note.read_text() == "closed\n"


def test_hooks_of_the_child_run_at_its_end(new_child, tmp_path, start_method):
    """Behind its own `close`; those of the parent do not, whatever was inherited."""
    notes = tmp_path / "notes"

    def write(line):
        with notes.open("a") as file:
            file.write(f"{line}\n")

    def hooked():
        atexit.register(write, "hook")
        return Counter(note=str(notes))

    parents = atexit.register(partial(write, "parent"))
    try:
        child = new_child(hooked, method=start_method)
        child.close()
    finally:
        atexit.unregister(parents)
    assert notes.read_text() == "closed\nhook\n" and child.exitcode == 0


def test_a_hook_that_hangs_is_bounded(new_child, start_method):
    def hooked():
        atexit.register(time.sleep, 20)
        return Counter()

    child = new_child(hooked, method=start_method, limits=IMPATIENT)
    before = time.monotonic()
    child.close()
    assert time.monotonic() - before < 3.0 and is_gone(child.pid)


def test_a_closed_child_is_not_kept(new_child):
    before = len(multiprocessing.util._finalizer_registry)
    with new_child() as child:
        assert len(multiprocessing.util._finalizer_registry) > before
    assert child.state == "closed"
    assert len(multiprocessing.util._finalizer_registry) == before


def test_close_in_a_long_call(new_child, tmp_path, start_method):
    note = tmp_path / "note"
    factory = partial(Counter, note=str(note))
    child = new_child(factory, method=start_method, limits=IMPATIENT)
    promise = child.call("sleep", 20)
    before = time.monotonic()
    child.close()
    assert time.monotonic() - before < 2.0
    assert is_gone(child.pid)
    assert note.read_text() == "closed\n"  # SIGTERM interrupts the call
    with pytest.raises(ChildFailed, match="child 7 was closed before it replied"):
        promise.result()


@pytest.mark.parametrize("factory", [Counter, child_objects.DeafClose])
def test_close_of_what_does_not_listen(new_child, factory):
    child = new_child(factory, limits=IMPATIENT)
    child.call("sleep_deaf", 20 if factory is Counter else 0)
    before = time.monotonic()
    child.close()
    assert time.monotonic() - before < 3.0
    assert child.exitcode == -signal.SIGKILL
    assert is_gone(child.pid)


def test_close_all_waits_for_all_at_once(new_child):
    limits = ChildLimits(close_secs=0.5)
    children = [new_child(limits=limits) for _ in range(4)]
    for child in children:
        child.call("sleep", 20)
    before = time.monotonic()
    close_all(children)
    assert time.monotonic() - before < 1.5
    assert all(is_gone(child.pid) for child in children)


def test_close_while_a_long_reply_is_on_its_way(new_child, tmp_path):
    note = tmp_path / "note"
    child = new_child(partial(Counter, note=str(note)), limits=LIMITS)
    child.call("echo", bytes(3_000_000))
    child.close()
    assert child.exitcode == 0
    assert note.read_text() == "closed\n"


def test_close_in_every_other_state(new_child, monkeypatch):
    with new_child(ready=False) as child:
        pass
    assert child.state == "closed"
    with new_child(ready=False) as starting:
        starting.start()
    assert is_gone(starting.pid)
    ChildProcess.__new__(ChildProcess).close()
    dead = new_child()
    os.kill(dead.pid, signal.SIGKILL)
    dead.close()
    assert (dead.state, dead.exitcode) == ("closed", -signal.SIGKILL)


def test_a_close_that_raises_is_a_warning(new_child, monkeypatch):
    lines = []
    monkeypatch.setattr(
        "absl.logging.warning", lambda text, *args: lines.append(text % args)
    )
    child = new_child(child_objects.BadClose)
    child.close()
    assert child.exitcode == 0
    assert len(lines) == 1
    assert "child 7" in lines[0] and "ArithmeticError('cannot close')" in lines[0]


def test_copies_and_pickles_are_refused(new_child):
    for child in (
        new_child(ready=False),
        new_child(),
        ChildProcess.__new__(ChildProcess),
    ):
        for act in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="ChildProcess cannot be copied"):
                act(child)


def test_a_start_that_fails_gives_everything_back(new_child, monkeypatch):
    child = new_child(ready=False, method="spawn")

    def refuse(*args):
        raise PermissionError("no processes")

    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", refuse)
    with pytest.raises(PermissionError):
        child.start()
    assert child.state == "failed"
    with pytest.raises(ChildDied, match="child 7"):
        child.wait_ready()


def test_no_descriptors_for_a_start(new_child, monkeypatch):
    child = new_child(ready=False)

    def refuse(*args):
        raise OSError("too many open files")

    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(OSError, match="too many"):
        child.start()
    assert child.state == "new"


def test_the_object_ends_its_own_children(new_child):
    child = new_child(child_objects.Parent)
    grandchild = child.wait_ready()
    assert not is_gone(grandchild)
    child.close()
    assert is_gone(grandchild)


def test_a_child_in_a_child(new_child, start_method):
    child = new_child(partial(child_objects.Nested, start_method), method=start_method)
    assert child.call("add", 3).result() == 3
    inner = child.wait_ready()
    child.close()
    assert child.exitcode == 0
    assert is_gone(inner)


def test_a_forgotten_child_goes_with_its_proxy(nothing_left):
    child = ChildProcess(Counter, "child 7", limits=LIMITS)
    child.start()
    child.wait_ready()
    pid = child.pid
    child.call("add", 1)
    del child
    gc.collect()
    assert is_gone(pid)
