"""Finding what belongs to a run, with real processes that hide."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from distrl.benchmark import chaos_processes
from distrl.benchmark.chaos_processes import RunProcesses, ports_of, task_name

TASK = [
    "python",
    "-m",
    "distrl.train",
    "--job_name=actor",
    "--task_index=1",
    "--gin_binding=a.b = 3",
    "--ps_hosts=127.0.0.1:15001",
    "--memory_hosts=127.0.0.1:15002,127.0.0.1:15003",
    "--learner_hosts=[::1]:15004",
]


def test_tasks_are_known_by_their_flags():
    assert task_name(TASK) == "actor/1"
    assert task_name([*TASK, "--restart=2"]) == "actor/1"
    assert task_name(["python", "-m", "launch.local", "--num_actors=2"]) is None
    assert task_name([]) is None
    assert ports_of(TASK) == {15001, 15002, 15003, 15004}


# A launcher with a task in a session of its own, which has a child.
LAUNCHER = """
    import subprocess, sys, time
    task = "import subprocess, time; subprocess.Popen(['sleep', '600'])"
    task += "; print(1, flush=True); time.sleep(600)"
    flags = ["--job_name=memory", "--task_index=0", "--run_dir=" + sys.argv[1]]
    flags += ["--ps_hosts=127.0.0.1:" + sys.argv[2]]
    started = subprocess.Popen(
        [sys.executable, "-c", task, *flags],
        start_new_session=True, stdout=subprocess.PIPE,
    )
    started.stdout.readline()
    print(started.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def launched(tmp_path):
    """(launcher, pid of the task, what watches them)"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(LAUNCHER), tmp_path, str(port)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        pid = int(process.stdout.readline())
        found = RunProcesses(process.pid, tmp_path)
        yield process, pid, found
        found.kill()
        process.wait(10)
        process.stdout.close()
        found.close()
    assert found.wait_until_gone(5.0) == []


@pytest.mark.timeout(60)
def test_tasks_are_found_and_nothing_that_is_left_escapes(launched):
    launcher, pid, found = launched
    assert {name: p.pid for name, p in found.tasks().items()} == {"memory/0": pid}
    children = {child.pid for child in psutil.Process(pid).children()}
    assert len(children) == 1
    assert {p.pid for p in found.living()} == {launcher.pid, pid, *children}
    launcher.kill()
    launcher.wait(10)
    found._seen.clear()  # as if all had come after the last look
    assert {p.pid for p in found.wait_until_gone(0.2)} == {pid, *children}
    os.kill(pid, signal.SIGKILL)
    assert {p.pid for p in found.wait_until_gone(1.0)} == children
    found.kill()
    assert found.wait_until_gone(5.0) == []
    assert found.tasks() == {}


@pytest.mark.timeout(60)
def test_what_was_never_seen_is_known_by_the_folder(launched, tmp_path):
    *_, found = launched
    flag = f"--run_dir={tmp_path}"
    command = [sys.executable, "-c", "input()", "--job_name=actor", "--task_index=9"]
    stranger = subprocess.Popen(
        [*command, flag], stdin=subprocess.PIPE, start_new_session=True
    )
    other = subprocess.Popen([*command, f"{flag}2"], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 10  # until both have become what they run
        while not all(psutil.Process(p.pid).cmdline() for p in (stranger, other)):
            assert time.monotonic() < deadline
        living = {p.pid for p in found.living()}
        assert stranger.pid in living
        assert not {other.pid, os.getpid()} & living
        found.add(stranger.pid)
        assert found.tasks()["actor/9"].pid == stranger.pid
    finally:
        for process in (stranger, other):
            process.kill()
            process.wait(10)
            process.stdin.close()


@pytest.mark.timeout(60)
def test_ports_are_those_of_the_command_lines(launched):
    *_, found = launched
    found.look()
    (port,) = found.ports
    assert found.listening() == [port]
    found.ports = {port + 1} if port < 65535 else {port - 1}
    assert found.listening() == []


def test_temporary_files_are_found_and_others_are_not(tmp_path):
    left = [".best.new", "a/summary.tmp", "a/.000000000005.old", ".summary.json.17"]
    for name in [*left, "summary.json", "a/new", "a/config.gin"]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    found = chaos_processes.temporary_files(tmp_path)
    assert sorted(found) == sorted(tmp_path / name for name in left)


def test_shared_memory_is_listed():
    if not pathlib.Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm")
    path = pathlib.Path(f"/dev/shm/test-chaos-{os.getpid()}")
    path.write_text("")
    try:
        assert path.name in chaos_processes.shared_memory()
    finally:
        path.unlink()
    assert path.name not in chaos_processes.shared_memory()
