"""What goes wrong with a run, and when: drawn from a seed, delivered by signals."""

from __future__ import annotations

import heapq
import itertools
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import psutil

KILL, STOP, DELAY, LEAVE, JOIN = FAULTS = ("kill", "stop", "delay", "leave", "join")
ELASTIC = (LEAVE, JOIN)  # only actors come and go
DELAY_SECS = (1.0, 2.0)
GONE = "the task was gone already"
ENDED = "the run had ended"


class Fault(NamedTuple):
    """One entry of a schedule."""

    after_secs: float  # since the run is running
    kind: str  # of FAULTS
    job: str
    task_index: int
    secs: float = 0.0  # from SIGSTOP to SIGCONT

    @property
    def task(self) -> str:
        return f"{self.job}/{self.task_index}"


class Delivery(NamedTuple):
    """What became of a fault."""

    fault: Fault
    time: float  # unix, s
    note: str = ""  # why there was none


class Target(Protocol):
    """A run that faults are delivered to."""

    def wait(self, seconds: float) -> bool:
        """Whether the launcher has ended, at most `seconds` from now."""

    def tasks(self) -> Mapping[str, psutil.Process]:
        """The processes of the launcher's tasks, and actors by hand, by job/index."""

    def join(self, index: int) -> None:
        """Starts another actor by hand."""


def draw(
    seed: int,
    kinds: Sequence[str],
    tasks: Sequence[tuple[str, int]],
    window: tuple[float, float],
    number: int = 1,
    stop_secs: float = 20.0,
) -> list[Fault]:
    """A schedule of `number` faults in order of time, the same for the same arguments.

    Times, in s, are uniform over `window`. Raises ValueError for a kind that there is
    not, or that does not go with one of the tasks.
    """
    for kind in kinds:
        check_kind(kind, [job for job, _ in tasks])
    random = np.random.default_rng(seed)
    times = sorted(float(t) for t in random.uniform(*window, size=number))
    faults = []
    for after_secs in times:
        kind = kinds[int(random.integers(len(kinds)))]
        job, index = tasks[int(random.integers(len(tasks)))]
        delay = float(random.uniform(*DELAY_SECS))
        secs = {STOP: stop_secs, DELAY: delay}.get(kind, 0.0)
        faults.append(Fault(round(after_secs, 3), kind, job, index, round(secs, 3)))
    return faults


def check_kind(kind: str, jobs: Sequence[str]) -> None:
    """Raises ValueError unless this fault can happen to tasks of these jobs."""
    if kind not in FAULTS:
        raise ValueError(f"expected one of {', '.join(FAULTS)}, got {kind!r}")
    others = sorted({job for job in jobs if job != "actor"})
    if kind in ELASTIC and others:
        raise ValueError(f"only actors {kind}, not {', '.join(others)}")


def deliver(fault: Fault, run: Target) -> tuple[Delivery, psutil.Process | None]:
    """Does it, now; the process is what has to be continued later.

    psutil compares the start of the process with what it was, so that a pid that now
    belongs to another one gets no signal.
    """
    now = time.time()
    if fault.kind == JOIN:
        run.join(fault.task_index)
        return Delivery(fault, now), None
    number = {KILL: signal.SIGKILL, LEAVE: signal.SIGTERM}
    try:
        process = run.tasks()[fault.task]
        process.send_signal(number.get(fault.kind, signal.SIGSTOP))
    except (KeyError, psutil.NoSuchProcess):
        return Delivery(fault, now, GONE), None
    return Delivery(fault, now), process if fault.secs else None


def play(
    schedule: Sequence[Fault],
    run: Target,
    clock: Callable[[], float] = time.monotonic,
) -> list[Delivery]:
    """Delivers a schedule to a run that is running; returns when nothing is due any
    more, or the run has ended."""
    begin, order = clock(), itertools.count()
    due: list[tuple[float, int, Fault, psutil.Process | None]]
    due = [(fault.after_secs, next(order), fault, None) for fault in schedule]
    heapq.heapify(due)
    deliveries = []
    while due:
        when, _, fault, stopped = heapq.heappop(due)
        ended = run.wait(max(0.0, begin + when - clock()))
        if stopped is not None:
            resume(stopped)
        elif ended:
            deliveries.append(Delivery(fault, time.time(), ENDED))
        else:
            delivery, process = deliver(fault, run)
            deliveries.append(delivery)
            if process is not None:
                entry = (clock() - begin + fault.secs, next(order), fault, process)
                heapq.heappush(due, entry)
    return deliveries


def resume(process: psutil.Process) -> None:
    """Continues a stopped process, if it has not been ended meanwhile."""
    try:
        process.send_signal(signal.SIGCONT)
    except psutil.NoSuchProcess:
        return
