"""Whole runs and peer programs, with fakes in the place of both."""

import json
import pathlib
import sys

import psutil
import pytest

from distrl.benchmark import whole_runs

HERE = pathlib.Path(__file__).parent


def fake_python(path, text):
    """An interpreter, whatever program it is given."""
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def launcher(monkeypatch, tmp_path):
    """A function that returns the flags which the fake launcher was given."""
    path = tmp_path / "flags.json"
    monkeypatch.setattr(whole_runs, "_LAUNCHER", "fake_launcher")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("FAKE_LAUNCHER_FLAGS", str(path))
    return lambda: json.loads(path.read_text())


@pytest.mark.timeout(60)
def test_the_launcher_gets_what_the_run_needs(launcher, tmp_path, capfd):
    bindings = [*whole_runs.ends(5.0, 475.0), "a.b = 'c d'"]
    config = "configs/ppo/cartpole.gin"
    run = whole_runs.whole_run(config, bindings, 3, tmp_path / "run", seed=7)
    assert run.summary["env_steps"] == 4000
    flags = launcher()
    assert flags["gin_binding"] == [
        "StopConditions.max_env_steps = None",
        "StopConditions.max_learner_steps = None",
        "StopConditions.target_return = 475.0",
        "StopConditions.max_seconds = 5.0",
        "a.b = 'c d'",
    ]
    assert (flags["num_actors"], flags["seed"]) == (3, 7)
    assert flags["no_final_evaluation"] and flags["file"].endswith(config)
    printed = capfd.readouterr()
    assert printed.out == "" and "run directory" in printed.err


@pytest.mark.timeout(60)
def test_a_failed_run_is_reported(launcher, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_LAUNCHER_EXIT_CODE", "3")
    config = "configs/ppo/cartpole.gin"
    with pytest.raises(RuntimeError, match="the run failed with exit code 3"):
        whole_runs.whole_run(config, [], 1, tmp_path / "run")


def test_the_newest_line_is_whole_and_of_this_life(tmp_path):
    assert whole_runs.newest_line(tmp_path, "ps-0", 0.0) is None
    (tmp_path / "metrics").mkdir()
    path = tmp_path / "metrics" / "ps-0.jsonl"
    path.write_text('{"time": 1.5')
    assert whole_runs.newest_line(tmp_path, "ps-0", 0.0) is None
    path.write_text("x" * 70_000 + '\n{"time": 1.5}\n{"time": 2.5}\n{"ti')
    assert whole_runs.newest_line(tmp_path, "ps-0", 2.0) == {"time": 2.5}
    assert whole_runs.newest_line(tmp_path, "ps-0", 3.0) is None


def test_wait_fractions_are_of_the_running_phase(tmp_path):
    lines = [
        {"phase": "starting", "waits": {"actor": 1.0}},
        {"phase": "running", "waits": {"actor": 0.5, "learner": 0.1}},
        {"phase": "running", "waits": {"actor": 0.1}},
        {"phase": "stopping", "waits": {"actor": 1.0}},
    ]
    (tmp_path / "metrics").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics" / "ps-0.jsonl").write_text(text)
    running = whole_runs.running_lines(tmp_path)
    fractions = whole_runs.wait_fractions(running)
    assert fractions == pytest.approx({"actor": 0.3, "learner": 0.1})


PEER = """
import json, os, subprocess, sys, time
print("words of its own")
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
time.sleep(0.5)  # long enough for the child to be seen
print(json.dumps({"arguments": sys.argv[1:], "child": child.pid, "at": os.getcwd(),
                  "pyc": "PYTHONDONTWRITEBYTECODE" not in os.environ,
                  "path": os.environ["PYTHONPATH"]}))
"""


@pytest.mark.timeout(60)
def test_a_peer_prints_its_record_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(whole_runs, "_SAMPLE_SECS", 0.05)
    python = fake_python(tmp_path / "python", PEER)
    record, _ = whole_runs.peer_run(python, "program", ["--secs=1"], 1.0)
    assert record["arguments"] == ["-m", "distrl.benchmark.program", "--secs=1"]
    assert record["pyc"] and (pathlib.Path(record["path"]) / "distrl").is_dir()
    assert not pathlib.Path(record["at"]).exists()
    assert not alive(record["child"])


@pytest.mark.timeout(60)
def test_a_peer_that_fails_is_reported(tmp_path):
    python = fake_python(tmp_path / "python", "raise SystemExit(3)")
    with pytest.raises(RuntimeError, match=f"{python} -m .*.program: exit code 3"):
        whole_runs.peer_run(python, "program", [], 1.0)


@pytest.mark.timeout(60)
def test_a_peer_that_never_ends_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(whole_runs, "_SPARE_SECS", 0.5)
    python = fake_python(tmp_path / "python", "import time; time.sleep(600)")
    with pytest.raises(RuntimeError, match="python.*timed out"):
        whole_runs.peer_run(python, "program", [], 0.0)
    commands = [p.info["cmdline"] or () for p in psutil.process_iter(["cmdline"])]
    assert not [words for words in commands if python in words]


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.timeout(60)
def test_a_peer_that_prints_nothing_is_reported(tmp_path):
    python = fake_python(tmp_path / "python", "print('no record')")
    with pytest.raises(RuntimeError, match="no record"):
        whole_runs.peer_run(python, "program", [], 1.0)
