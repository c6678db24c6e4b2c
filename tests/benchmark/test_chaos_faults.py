"""Schedules drawn from a seed, and their delivery to real and to simulated tasks."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from distrl.benchmark import chaos_faults
from distrl.benchmark.chaos_faults import ENDED, GONE, Fault, draw, play

TASKS = [("actor", 0), ("actor", 1), ("memory", 0)]


def test_schedules_are_those_of_their_seed():
    drawn = [draw(s, ["kill", "stop"], TASKS, (2.0, 9.0), 20) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    times = [fault.after_secs for fault in drawn[0]]
    assert times == sorted(times) and 2.0 <= times[0] < times[-1] <= 9.0
    assert {fault.kind for fault in drawn[0]} == {"kill", "stop"}
    assert {fault.task for fault in drawn[0]} == {"actor/0", "actor/1", "memory/0"}


@pytest.mark.parametrize(
    "kind, low, high", [("kill", 0, 0), ("stop", 7, 7), ("delay", 1, 2)]
)
def test_how_long_a_fault_lasts(kind, low, high):
    for fault in draw(0, [kind], TASKS, (0.0, 1.0), 30, stop_secs=7.0):
        assert low <= fault.secs <= high


@pytest.mark.parametrize(
    "kinds, tasks, words",
    [
        (["kil"], TASKS, "'kil'"),
        (["leave"], TASKS, "only actors leave, not memory"),
        (["join"], [("ps", 0)], "only actors join, not ps"),
    ],
)
def test_impossible_faults_are_refused(kinds, tasks, words):
    with pytest.raises(ValueError, match=words):
        draw(0, kinds, tasks, (0.0, 1.0))


class Clock:
    """Of a run that waits by letting this time pass."""

    def __init__(self, ends=1e9):
        self.now, self.ends, self.joined = 0.0, ends, []
        self.processes = {}

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now = min(self.now + seconds, self.ends)
        return self.now >= self.ends

    def tasks(self):
        return self.processes

    def join(self, index):
        self.joined.append((self.now, index))


class SimulatedProcess:
    def __init__(self, clock, pid=1):
        self.clock, self.signals = clock, []

    def send_signal(self, number):
        self.signals.append((self.clock.now, number))


def test_faults_come_at_their_times_and_stops_end_at_theirs():
    run = Clock()
    stopped, killed = SimulatedProcess(run), SimulatedProcess(run)
    run.processes = {"memory/0": stopped, "actor/1": killed}
    schedule = [
        Fault(3.0, "stop", "memory", 0, 20.0),
        Fault(5.0, "kill", "actor", 1),
        Fault(6.0, "join", "actor", 4),
        Fault(7.0, "leave", "actor", 9),
    ]
    notes = [d.note for d in play(schedule, run, run)]
    assert stopped.signals == [(3.0, signal.SIGSTOP), (23.0, signal.SIGCONT)]
    assert killed.signals == [(5.0, signal.SIGKILL)]
    assert run.joined == [(6.0, 4)]
    assert notes == ["", "", "", GONE]


def test_a_run_that_has_ended_is_left_in_peace():
    run = Clock(ends=4.0)
    process = SimulatedProcess(run)
    run.processes = {"actor/0": process}
    schedule = [Fault(1.0, "delay", "actor", 0, 9.0), Fault(5.0, "kill", "actor", 0)]
    deliveries = play(schedule, run, run)
    assert [d.note for d in deliveries] == ["", ENDED]
    assert process.signals == [(1.0, signal.SIGSTOP), (4.0, signal.SIGCONT)]


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
    yield process
    process.kill()
    process.wait(10)
    process.stdin.close()


@pytest.mark.timeout(30)
def test_a_process_is_stopped_continued_and_killed(sleeper):
    run = Clock()
    run.processes = {"actor/0": psutil.Process(sleeper.pid)}
    stop = Fault(0.0, "stop", "actor", 0, 5.0)
    _, stopped = chaos_faults.deliver(stop, run)
    os.waitpid(sleeper.pid, os.WUNTRACED)  # the kernel tells its parent
    assert stopped.status() == psutil.STATUS_STOPPED
    chaos_faults.resume(stopped)
    assert stopped.status() != psutil.STATUS_STOPPED
    delivery, later = chaos_faults.deliver(Fault(0.0, "kill", "actor", 0), run)
    assert sleeper.wait(10) == -signal.SIGKILL
    assert delivery.note == "" and later is None
    chaos_faults.resume(stopped)  # is gone: no error
    assert chaos_faults.deliver(stop, run)[0].note == GONE


@pytest.mark.timeout(30)
def test_another_process_with_the_pid_gets_no_signal(sleeper):
    process = psutil.Process(sleeper.pid)
    started_earlier = process.create_time() - 100
    process._create_time = started_earlier
    process._ident = (sleeper.pid, started_earlier)
    run = Clock()
    run.processes = {"actor/0": process}
    kill = Fault(0.0, "kill", "actor", 0)
    assert chaos_faults.deliver(kill, run)[0].note == GONE
    assert sleeper.poll() is None
