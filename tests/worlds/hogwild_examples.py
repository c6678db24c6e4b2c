"""What the workers of HogwildWorlds play in tests, and who looks after them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver

import psutil
from examples import CountingTeacher, Repeater, counting_world

from distrl.core.child_process import ChildLimits
from distrl.worlds.hogwild_world import HogwildWorld
from distrl.worlds.multi_world import MultiWorld
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.reducers import Report, Sum
from distrl.worlds.world import World

LIMITS = ChildLimits(startup_secs=40.0, call_secs=20.0, close_secs=2.0)


@contextmanager
def impatient(world: HogwildWorld, **limits: float) -> Iterator[None]:
    """Meanwhile it waits less long; its workers are as slow as the machine is."""
    usual = world._limits
    world._limits = dataclasses.replace(usual, **limits)
    yield
    world._limits = usual


def workers() -> set[int]:
    """The processes that the fork server has started and that live."""
    server = forkserver._forkserver._forkserver_pid
    if server is None:
        return set()
    children = psutil.Process(server).children(recursive=True)
    return {child.pid for child in children if not is_gone(child.pid)}


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(predicate: Callable[[], object], timeout: float, what: str) -> None:
    """Polls, for what happens in other processes."""
    deadline = time.monotonic() + timeout
    while not predicate():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain: {what}"
        time.sleep(0.01)


class Witness(Repeater):
    """Repeats, and counts by process what it has done."""

    def act(self):
        self.metrics.add(f"pid/{os.getpid()}", Sum(1))
        return super().act()

    def save(self, directory: pathlib.Path) -> None:
        (directory / "saved").write_text(str(os.getpid()))


class Slow(Witness):
    """Needs some time for each act."""

    def act(self):
        time.sleep(0.3)
        return super().act()


class Gated(Witness):
    """Acts only where a file exists."""

    def __init__(self, gate: pathlib.Path):
        super().__init__()
        self._gate = gate

    def act(self):
        while not self._gate.exists():
            time.sleep(0.005)
        return super().act()


class Troubled(Witness):
    """Something happens at the end of one example: the first so many times, in all
    processes."""

    def __init__(self, at: int, trouble: Callable[[], None], notes: str, times: int):
        super().__init__()
        self._at, self._trouble = at, trouble
        self._notes, self._times = notes, times

    def act(self):
        shown = self.observation
        if shown["observation"] == self._at and shown["episode_done"]:
            if first_times(f"{self._notes}/trouble", self._times):
                self._trouble()
        return super().act()


def first_times(note: str, times: int) -> bool:
    """Whether this was asked at most so many times, by any process."""
    for number in range(times):
        try:
            os.close(os.open(f"{note}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def fail() -> None:
    raise ArithmeticError("the example is bad")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(3)


def hang() -> None:
    time.sleep(60)


def witnessed(worker: int, *arguments, **kwargs) -> World:
    return counting_world(*arguments, student=Witness(), **kwargs)


def slow(worker: int) -> World:
    return counting_world(10, student=Slow())


def gated(gate: pathlib.Path, worker: int) -> World:
    return counting_world(17, student=Gated(gate))


def troubled(trouble, notes, times: int, worker: int, steps: int = 1) -> World:
    """17 examples, of which number 5 is the bad one."""
    student = Troubled(5, trouble, str(notes), times)
    return counting_world(17, steps=steps, student=student)


def made_badly(trouble, at: int, worker: int) -> World:
    """Of the workers, number `at` cannot make its world."""
    if worker == at:
        trouble()
    return witnessed(worker, num_examples=5)


def made_once(trouble, notes, times: int, worker: int) -> World:
    """A worker dies with an example, and a world can be made so many times."""
    if not first_times(f"{notes}/made", times):
        trouble()
    return troubled(die, notes, 1, worker)


def mixture(worker: int) -> World:
    """5 episodes of two parleys, and 17 of one."""
    student = Witness()
    worlds = [
        PartnerWorld([CountingTeacher(5, steps=2, name="a"), student]),
        PartnerWorld([CountingTeacher(17, name="b"), student]),
    ]
    return MultiWorld(worlds, "stochastic", seed=worker)


def hogwild(make_world, num_workers: int, batch_size: int = 1, **kwargs):
    kwargs = {"limits": LIMITS} | kwargs
    return HogwildWorld(make_world, num_workers, batch_size, **kwargs)


def pids_of(report: Report) -> set[int]:
    """Who did what a report is of, by the metrics of a Witness."""
    return {int(name.partition("/")[2]) for name in report if name.startswith("pid/")}
