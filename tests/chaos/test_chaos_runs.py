"""Cells of the matrix with a launcher that only seems to run something."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from distrl.benchmark import chaos_cells, chaos_run
from distrl.benchmark.chaos_cells import Cell, Conditions
from distrl.benchmark.chaos_run import LaunchedRun, by_hand

HERE = pathlib.Path(__file__).parent
CONDITIONS = Conditions(secs=0.3)
CELL = Cell("apex", "kill", "actor")
ARGUMENTS = ["configs/apex/cartpole.gin"]


@pytest.fixture(autouse=True)
def launcher(monkeypatch, tmp_path):
    """No process of a run survives a test."""
    monkeypatch.setattr(chaos_run, "LAUNCHER", "fake_chaos_launcher")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    yield
    assert tasks_alive(tmp_path) == []


def tasks_alive(folder):
    lines = [
        " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])
    ]
    return [line for line in lines if f"--run_dir={folder}" in line]


def wait_until_ended(process):
    """Without taking its exit code away from who started it."""
    deadline = time.monotonic() + 10
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)  # it is another's child


@pytest.mark.timeout(60)
def test_a_cell_that_goes_well(tmp_path):
    record = chaos_cells.run_cell(CELL, CONDITIONS, tmp_path)
    assert record["complaints"] == []
    (fault,) = record["faults"]
    assert fault[0] in ("actor/0", "actor/1") and fault[2] == ""
    assert record["lost"] == {"experience": 10} and record["exit_code"] == 0
    assert json.loads(json.dumps(record)) == record
    said = (tmp_path / f"{CELL.name}.log").read_text()
    assert "(SIGKILL); starting it again" in said


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "wrong, expected",
    [
        ("ledger", "ledger: experience: the ledger has 9 rows received, traced are 10"),
        ("exit code", "exit code: the launcher's is 1 (actor"),
        ("leaves a task", "left behind: process"),
        ("never ends", "exit code: the run did not end (actor"),
    ],
)
def test_a_cell_that_goes_wrong(tmp_path, monkeypatch, wrong, expected):
    monkeypatch.setenv("FAKE_CHAOS", wrong)
    monkeypatch.setattr(chaos_cells, "_FAREWELL_SECS", -18.0)
    monkeypatch.setattr(chaos_run, "GONE_SECS", 0.5)
    record = chaos_cells.run_cell(CELL, CONDITIONS, tmp_path)
    (complaint,) = record["complaints"]
    assert complaint.startswith(expected)


@pytest.mark.timeout(60)
def test_a_run_that_must_not_survive_and_does(tmp_path):
    cell = CELL._replace(policy="fail")
    record = chaos_cells.run_cell(cell, CONDITIONS, tmp_path)
    (complaint,) = record["complaints"]
    assert complaint == "exit code: the launcher's is 0, though a task has failed"


@pytest.mark.timeout(60)
def test_a_run_that_does_not_start(tmp_path):
    bad = Conditions(secs=0.3, bindings=("x",))
    (tmp_path / CELL.name).write_text("")  # a file where the folder should be
    record = chaos_cells.run_cell(CELL, bad, tmp_path)
    (complaint,) = record["complaints"]
    assert complaint.startswith("start: ") and "--run_dir" in complaint


@pytest.mark.timeout(60)
def test_nothing_is_left_when_the_block_is_left_early(tmp_path):
    with pytest.raises(KeyError), LaunchedRun(ARGUMENTS, tmp_path / "run") as run:
        run.wait_until_running()
        assert len(tasks_alive(tmp_path)) == 6  # the launcher's flag is the same
        process = run.tasks()["memory/0"]
        process.send_signal(signal.SIGSTOP)
        raise KeyError
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.timeout(60)
def test_a_whole_run_is_killed(tmp_path):
    with LaunchedRun(ARGUMENTS, tmp_path / "run") as run:
        run.wait_until_running()
        before = time.time()
        assert before <= run.kill() <= time.time()
        assert run.processes_left() == [] and tasks_alive(tmp_path) == []
        assert run.finish(0.0).exit_code == -signal.SIGKILL


@pytest.mark.timeout(60)
def test_an_actor_by_hand_comes_and_leaves(tmp_path):
    with LaunchedRun(ARGUMENTS, tmp_path / "run") as run:
        run.wait_until_running()
        run.join(7)
        actor = run.tasks()["actor/7"]
        assert "--task_index=7" in actor.cmdline()
        assert (
            actor.environ()["PYTHONPATH"]
            == run.tasks()["actor/0"].environ()["PYTHONPATH"]
        )
        actor.send_signal(signal.SIGTERM)
        wait_until_ended(actor)
        run.join(7)
        assert "--restart=1" in run.tasks()["actor/7"].cmdline()
        run.tasks()["ps/0"].kill()
        ending = run.finish(20.0)
    assert ending.by_hand["actor/7"] == [-signal.SIGTERM, -signal.SIGKILL]
    assert any("--task_index=7" in what for what in ending.left)  # it never ends


def test_an_actor_by_hand_has_the_flags_of_another():
    command = ["python", "--job_name=actor", "--task_index=1", "--x=2", "--restart=4"]
    command += ["--incarnation=9"]  # two with the same would be one for the others
    shared = ["python", "--job_name=actor", "--x=2"]
    assert by_hand(command, 5, 0) == [*shared, "--task_index=5"]
    assert by_hand(command, 5, 2) == [*shared, "--task_index=5", "--restart=2"]
    with pytest.raises(ValueError, match="sleep"):
        by_hand(["sleep"], 5, 0)


@pytest.mark.timeout(60)
def test_the_program_leaves_nothing_when_it_is_ended(tmp_path):
    """SIGTERM in the middle of a cell, whose run would not end by itself."""
    program = "import distrl.benchmark.chaos_run as run; "
    program += "run.LAUNCHER = 'fake_chaos_launcher'; "
    program += "from distrl.benchmark import chaos; chaos.main()"
    flags = ["--agents=apex", "--faults=delay", "--jobs=ps", f"--folder={tmp_path}"]
    root = str(HERE.parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", program, *flags],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, str(HERE)])},
    )
    try:
        deadline = time.monotonic() + 40
        while len(tasks_alive(tmp_path)) < 6:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)  # processes of processes cannot be waited for
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait(10)
