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


@dataclasses.dataclass
class _Started:
    """A process of a task."""

    task: Task
    process: subprocess.Popen
    incarnation: int  # its place among the starts, about the unix time in ns
    killed: bool = False


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
        self._started: list[_Started] = []
        self._incarnation = 0  # of the newest
        self._waiters: list[threading.Thread] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Raises OSError when a process cannot be started."""
        for task in self._tasks:
            self._start(task)

    def start_again(self, task: Task) -> None:
        """Starts a task whose process has ended; what that one has left is killed.

        Raises OSError when the process cannot be started.
        """
        for ended in self._of(task.job, task.index):
            for child in self._leftovers({ended.process.pid}):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            self._close_stdin(ended)
            self._started.remove(ended)
        self._waiters = [waiter for waiter in self._waiters if waiter.is_alive()]
        self._start(task)

    def signal(self, job: str, index: int, number: int) -> None:
        """Sends a signal to one task, if it still runs."""
        for started in self._of(job, index):
            started.process.send_signal(number)

    def kill_if_older(self, job: str, index: int, incarnation: int) -> bool:
        """Kills a task and its children, once, if it is this incarnation or an older
        one; whether it did."""
        for started in self._of(job, index):
            if started.incarnation <= incarnation and not started.killed:
                started.killed = True
                self._kill(started)
                return True
        return False

    def signal_all(self, number: int) -> None:
        """Sends a signal to every task that runs, SIGKILL to their children too."""
        for started in self._started:
            if number != signal.SIGKILL:
                started.process.send_signal(number)
            else:
                self._kill(started)

    def close(self) -> None:
        """Kills what still runs and what ended tasks left behind; may be repeated."""
        self.signal_all(signal.SIGKILL)
        deadline = time.monotonic() + REAP_SECS
        for waiter in self._waiters:
            waiter.join(max(0.0, deadline - time.monotonic()))
        for started in self._started:
            self._close_stdin(started)
        sessions = {started.process.pid for started in self._started}
        leftovers = self._leftovers(sessions)
        _, stubborn = psutil.wait_procs(leftovers, timeout=LEFTOVER_SECS)
        for child in stubborn:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(stubborn, timeout=KILLED_SECS)

    def _of(self, job: str, index: int) -> list[_Started]:
        return [s for s in self._started if (s.task.job, s.task.index) == (job, index)]

    def _start(self, task: Task) -> None:
        # Also where the clock has gone back since the last start.
        self._incarnation = max(time.time_ns(), self._incarnation + 1)
        with (self._logs / task.log_name).open("ab") as log:
            process = subprocess.Popen(
                [
                    *task.command,
                    *[f"--incarnation={self._incarnation}"] * task.numbered,
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **task.environment},
                start_new_session=True,
            )
        self._started.append(_Started(task, process, self._incarnation))
        waiter = threading.Thread(
            target=self._wait, args=(task, process), name=f"wait for {task.name}"
        )
        # Ends with its process, which `close` kills; a daemon only for the case that
        # the kernel does not let go of that process.
        waiter.daemon = True
        waiter.start()
        self._waiters.append(waiter)

    def _wait(self, task: Task, process: subprocess.Popen) -> None:
        exit_code = process.wait()
        self._events.put(TaskExit(task, exit_code, time.time()))

    @staticmethod
    def _kill(started: _Started) -> None:
        if started.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.process.pid, signal.SIGKILL)

    @staticmethod
    def _close_stdin(started: _Started) -> None:
        if started.process.stdin is not None:
            started.process.stdin.close()

    @staticmethod
    def _leftovers(sessions: set[int]) -> list[psutil.Process]:
        """What lives on in these sessions of tasks."""
        living = []
        for child in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                zombie = child.status() == psutil.STATUS_ZOMBIE
                if os.getsid(child.pid) in sessions and not zombie:
                    living.append(child)
        return living
