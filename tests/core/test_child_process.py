"""The process contract: calls are promises, errors keep their type, all is closed."""

import copy
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial

import child_objects
import pytest
from child_objects import Counter, Holdings, Locked, Picky, Plant, is_gone, wait_until

from distrl.core import child_process
from distrl.core.child_process import (
    START_METHODS,
    ChildDied,
    ChildFailed,
    ChildLimits,
    ChildProcess,
    RemoteTraceback,
    WaitStopped,
    close_all,
    collect,
)

pytestmark = pytest.mark.timeout(60)
LIMITS = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=3.0)
IMPATIENT = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=0.3)


@pytest.fixture(scope="module", autouse=True)
def servers():
    """multiprocessing's own helpers are there before anything is counted."""
    with ChildProcess(Counter, "first") as child:
        child.start()
        child.wait_ready(30.0)


@pytest.fixture(autouse=True)
def nothing_left(servers):
    before = Holdings()
    yield
    wait_until(
        lambda: not Holdings().added_since(before),
        5.0,
        "descriptors, threads, children",
    )


@pytest.fixture(params=START_METHODS)
def start_method(request):
    if request.param == "fork" and "tensorflow" in sys.modules:
        pytest.skip("TensorFlow is loaded; test_fork_without_tensorflow runs this")
    return request.param


@pytest.fixture
def new_child(nothing_left):
    """Makes children, started or not, that are closed after the test."""
    children = []

    def make(
        factory=Counter, name="child 7", method="forkserver", ready=True, **kwargs
    ):
        child = ChildProcess(factory, name, method, **({"limits": LIMITS} | kwargs))
        children.append(child)
        if ready:
            child.start()
            child.wait_ready()
        return child

    yield make
    close_all(children)


def factories():
    start = 3
    return {
        "function": (child_objects.counter_at_zero, 0),
        "lambda": (lambda: Counter(start), 3),
        "partial": (partial(Counter, start=4), 4),
        "class": (Counter, 0),
        "bound method": (Plant(5).make, 5),
    }


# Factories and start methods


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


@pytest.mark.skipif("'tensorflow' not in sys.modules")
def test_fork_without_tensorflow():
    command = [sys.executable, "-m", "pytest", "-q", "-k", "fork and not forkserver"]
    command += ["-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout


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
        assert os.environ[variable] == "3"


# Promises


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
    for _ in range(2):
        with pytest.raises(AttributeError, match="nothing") as caught:
            missing.result()
    assert len(caught.traceback) < 5  # each raise starts anew


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


# Errors


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
    [(Picky, (3, "picky"), "Picky: picky: 3"), (Locked, (), "Locked: locked")],
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


# The start


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


# The end


def test_closing_tells_the_object(new_child, tmp_path, start_method):
    note = tmp_path / "note"
    child = new_child(partial(Counter, note=str(note)), method=start_method)
    child.close()
    child.close()
    assert note.read_text() == "closed\n"


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


# Programs


ORPHANS = """
import time
from child_objects import Counter
from distrl.core.child_process import ChildProcess

if __name__ == "__main__":
    children = [ChildProcess(Counter, f"child {{i}}", "{method}") for i in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.wait_ready()
    for child, call in zip(children, ("sleep", "sleep_deaf", "sleep_deaf")):
        child.call(call, 20)
    print(*[child.pid for child in children], flush=True)
    time.sleep(60)
"""


def test_no_orphan_outlives_a_killed_parent(start_method, tmp_path):
    script = child_objects.start_script(ORPHANS.format(method=start_method), tmp_path)
    with script:
        try:
            pids = [int(pid) for pid in script.stdout.readline().split()]
            assert len(pids) == 4 and not any(map(is_gone, pids))
        finally:
            script.kill()
            script.wait()
        wait_until(lambda: all(map(is_gone, pids)), 5.0, f"the end of {pids}")


FORGETFUL = """
from child_objects import Counter
from distrl.core.child_process import ChildProcess

if __name__ == "__main__":
    children = [ChildProcess(Counter, f"child {{i}}", "{method}") for i in range(2)]
    for child in children:
        child.start()
        child.wait_ready()
    children[1].call("sleep", 60)
    print(*[child.pid for child in children], flush=True)
"""


def test_a_program_that_forgets_to_close_ends(start_method, tmp_path):
    script = child_objects.start_script(FORGETFUL.format(method=start_method), tmp_path)
    with script:
        out, errors = script.communicate(timeout=10.0)
    assert script.returncode == 0, errors
    pids = [int(pid) for pid in out.split()]
    assert len(pids) == 2
    wait_until(lambda: all(map(is_gone, pids)), 1.0, f"the end of {pids}")


UNGUARDED = """
from child_objects import Counter
from distrl.core.child_process import ChildProcess

child = ChildProcess(Counter, "child 7", "{method}")
child.start()
child.wait_ready()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_an_unguarded_program_is_told_so(method, tmp_path):
    script = child_objects.start_script(UNGUARDED.format(method=method), tmp_path)
    with script:
        _, errors = script.communicate(timeout=20.0)
    assert script.returncode != 0
    assert errors.count("ChildDied: child 7") == 1, errors
    assert 'if __name__ == "__main__"' in errors.splitlines()[-1]


def test_no_heavy_import_comes_with_it():
    text = "import sys, distrl.core.child_process as m; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert not {"tensorflow", "gymnasium"} & set(done.stdout.split())
    assert child_process.__name__ in done.stdout
