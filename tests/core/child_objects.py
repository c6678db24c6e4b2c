"""What the tests of child processes put into them, and what looks after them."""

import contextlib
import gc
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import forkserver, resource_tracker

import psutil

from distrl.core.child_process import ChildLimits, ChildProcess

LIMITS = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=3.0)
IMPATIENT = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=0.3)


def wait_until(predicate: Callable[[], object], timeout: float, what: str) -> None:
    """Polls, for what happens in other processes."""
    deadline = time.monotonic() + timeout
    while not predicate():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain: {what}"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def open_descriptors() -> set[tuple[str, str]]:
    """Numbers and what they name; threads may close some meanwhile."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found


class Holdings:
    """The descriptors, threads and child processes that this process has."""

    def __init__(self) -> None:
        gc.collect()
        servers = (
            forkserver._forkserver._forkserver_pid,
            resource_tracker._resource_tracker._pid,
        )
        self.descriptors = open_descriptors()
        self.threads = set(threading.enumerate())
        self.processes = set()
        for child in psutil.Process().children(recursive=True):
            if child.pid not in servers and not is_gone(child.pid):
                self.processes.add(child.pid)

    def added_since(self, before: "Holdings") -> dict[str, set]:
        return {
            name: added
            for name, held in vars(self).items()
            if (added := held - getattr(before, name))
        }


class Counter:
    """Adds up; `close` leaves a note where it was told to."""

    def __init__(self, start: int = 0, note: str = ""):
        self.total, self.note = start, note

    def describe(self) -> dict[str, int]:
        return {"start": self.total, "pid": os.getpid()}

    def add(self, number: int, times: int = 1) -> int:
        self.total += number * times
        return self.total

    def echo(self, value: object) -> object:
        return value

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def sleep_deaf(self, seconds: float) -> None:
        """As native code: SIGTERM has no effect before the end."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        time.sleep(seconds)

    def unpicklable(self) -> object:
        return threading.Lock()

    def environment(self, variable: str) -> str | None:
        return os.environ.get(variable)

    def first_environment(self) -> str:
        """The variables that the process was started with."""
        return pathlib.Path("/proc/self/environ").read_text()

    def send_signal(self, number: int) -> str:
        os.kill(os.getpid(), number)
        return "lives"

    def leave(self, code: int) -> None:
        os._exit(code)

    def raises(self, error: type[BaseException], *args: object) -> None:
        raise error(*args)

    def write(self, fd: int, text: str) -> int:
        with os.fdopen(fd, "w") as file:
            return file.write(text)

    def fork_and_die(self) -> None:
        """Leaves a process behind that holds copies of all descriptors."""
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        pathlib.Path(self.note).write_text(str(pid))
        os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        if self.note:
            with open(self.note, "a") as file:
                file.write("closed\n")


class BadClose(Counter):
    def close(self) -> None:
        raise ArithmeticError("cannot close")


class DeafClose(Counter):
    """Closes for longer than anybody waits, and SIGTERM does not reach it."""

    def close(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        time.sleep(60)


class Plant:
    """Something whose bound method is a factory."""

    def __init__(self, start: int):
        self.start = start

    def make(self) -> Counter:
        return Counter(self.start)


class Parent:
    """An object with a process of its own."""

    def __init__(self) -> None:
        self.process = multiprocessing.get_context("spawn").Process(
            target=time.sleep, args=(60,)
        )
        self.process.start()

    def describe(self) -> int | None:
        return self.process.pid

    def close(self) -> None:
        self.process.terminate()
        self.process.join()


class Nested:
    """An object that keeps another one in a process of its own."""

    def __init__(self, method: str):
        self.child = ChildProcess(Counter, "inner", method)
        self.child.start()
        self.child.wait_ready(20.0)

    def describe(self) -> int | None:
        return self.child.pid

    def add(self, number: int) -> int:
        return self.child.call("add", number).result(20.0)

    def close(self) -> None:
        self.child.close()


class Picky(Exception):
    """Pickles, but does not unpickle."""

    def __init__(self, code: int, reason: str):
        super().__init__(f"{reason}: {code}")


class Shifty(Exception):
    """Comes out of a pickle as something else."""

    def __reduce__(self) -> tuple:
        return str, ("shifty",)


class Locked(Exception):
    """Does not pickle."""

    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


def counter_at_zero() -> Counter:
    return Counter()


def failing_factory(error: type[BaseException], *args: object) -> None:
    raise error(*args)


def exiting_factory(code: int) -> None:
    os._exit(code)


def killed_factory() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hanging_factory() -> None:
    time.sleep(60)


def start_script(text: str, folder: pathlib.Path) -> subprocess.Popen[str]:
    """Runs a program of these lines, which finds distrl and this module."""
    path = folder / "script.py"
    path.write_text(text)
    tests = pathlib.Path(__file__).parent
    search = f"{tests.parent.parent}{os.pathsep}{tests}"
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": search},
    )
