"""Tasks as processes: started, heard of when they end, and never left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import psutil

from launch.description import Task

LEFTOVER_SECS = 2.0  # for children of an ended task to see that it is gone
REAP_SECS = 10.0  # for the kernel to end tasks that were killed
KILLED_SECS = 1.0  # the same for their children, which somebody else has to reap


@dataclasses.dataclass(frozen=True)
class TaskExit:
    """A task has ended: with an exit code, or by a signal (then −number)."""

    task: Task
    exit_code: int
    time: float  # unix seconds


@dataclasses.dataclass(frozen=True)
class SignalReceived:
    """Somebody asks the launcher to end."""

    number: int


Event = TaskExit | SignalReceived
# SimpleQueue, because its `put` may be called by a signal handler inside of its `get`.
Events = queue.SimpleQueue[Event]


@contextlib.contextmanager
def signals_as_events(events: Events) -> Iterator[None]:
    """SIGINT and SIGTERM only leave a SignalReceived in `events`. Main thread only."""

    def note(number: int, frame: FrameType | None) -> None:
        events.put(SignalReceived(number))

    before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Processes:
    """The processes of some tasks, each in a session of its own, so that the signals of
    a terminal reach the launcher alone.

        with Processes(tasks, logs, events) as processes:
            processes.start()
            event = events.get()

    Puts a TaskExit in `events` when a task ends. Nothing is left after the `with`.
    What tasks print is appended to `<logs>/<job>-<index>.log`. Each task's standard
    input is a pipe that ends when the launcher does, however that happens.
    """

    def __init__(self, tasks: Sequence[Task], logs: Path, events: Events):
        self._tasks = tasks
        self._logs = logs
        self._events = events
        self._started: list[tuple[Task, subprocess.Popen]] = []
        self._waiters: list[threading.Thread] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Raises OSError when a process cannot be started."""
        for task in self._tasks:
            process = self._start(task)
            self._started.append((task, process))
            waiter = threading.Thread(
                target=self._wait, args=(task, process), name=f"wait for {task.name}"
            )
            # Ends with its process, which `close` kills; a daemon only for the case
            # that the kernel does not let go of that process.
            waiter.daemon = True
            waiter.start()
            self._waiters.append(waiter)

    def signal(self, job: str, index: int, number: int) -> None:
        """Sends a signal to one task, if it still runs."""
        for task, process in self._started:
            if (task.job, task.index) == (job, index):
                process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """Sends a signal to every task that runs, SIGKILL to their children too."""
        for _, process in self._started:
            if number != signal.SIGKILL:
                process.send_signal(number)
            elif process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def close(self) -> None:
        """Kills what still runs and what ended tasks left behind; may be repeated."""
        self.signal_all(signal.SIGKILL)
        deadline = time.monotonic() + REAP_SECS
        for waiter in self._waiters:
            waiter.join(max(0.0, deadline - time.monotonic()))
        for _, process in self._started:
            if process.stdin is not None:
                process.stdin.close()
        _, stubborn = psutil.wait_procs(self._leftovers(), timeout=LEFTOVER_SECS)
        for child in stubborn:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(stubborn, timeout=KILLED_SECS)

    def _start(self, task: Task) -> subprocess.Popen:
        with (self._logs / task.log_name).open("ab") as log:
            return subprocess.Popen(
                task.argv,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **task.environment},
                start_new_session=True,
            )

    def _wait(self, task: Task, process: subprocess.Popen) -> None:
        exit_code = process.wait()
        self._events.put(TaskExit(task, exit_code, time.time()))

    def _leftovers(self) -> list[psutil.Process]:
        """What lives on in the sessions of the tasks."""
        sessions = {process.pid for _, process in self._started}
        living = []
        for child in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                zombie = child.status() == psutil.STATUS_ZOMBIE
                if os.getsid(child.pid) in sessions and not zombie:
                    living.append(child)
        return living
