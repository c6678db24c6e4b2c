"""The real program where it cannot write: named errors, exit codes, runs that go on."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from functools import partial

import psutil
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "apex" / "cartpole.gin"
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(ROOT),
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
}
BAD_INPUT = 2


def full_disk(room=0):
    """For a process: no file of it may have more bytes than `room`, whoever writes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))


def train(run_dir, *flags, job="memory", **options):
    """One task, which is to end by itself."""
    command = [sys.executable, "-m", "distrl.train", f"--job_name={job}"]
    hosts = [f"--{job}_hosts=127.0.0.1:{n}" for n, job in enumerate(JOBS, start=1)]
    command += ["--task_index=0", f"--gin_file={CONFIG}", "--num_actors=1", *hosts]
    options = {"stderr": subprocess.PIPE, "env": ENVIRONMENT, "timeout": 60} | options
    return subprocess.run([*command, f"--run_dir={run_dir}", *flags], **options)


JOBS = ("ps", "memory", "learner")


def call(code, *arguments, **options):
    """Runs code that knows `train` and `sys.argv[1:]`; what it prints."""
    code = f"import pathlib, sys\nfrom distrl import train\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        timeout=60,
        check=True,
        text=True,
        **options,
    ).stdout


# The start.


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "place, reason",
    [
        ("a file", "Not a directory"),
        ("a file/deeper", "Not a directory"),
        ("metrics is a file", "File exists"),
        ("/proc/nowhere", "No such file or directory"),
    ],
)
def test_a_run_dir_that_cannot_be_made_is_named_in_one_line(tmp_path, place, reason):
    (tmp_path / "a file").touch()
    (tmp_path / "metrics is a file").mkdir()
    (tmp_path / "metrics is a file" / "metrics").touch()
    ended = train(tmp_path / place)
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith(f"memory/0: --run_dir: cannot use {tmp_path / place}: ")
    assert reason in line and ended.returncode == BAD_INPUT


@pytest.mark.timeout(60)
def test_a_log_that_takes_no_more_leaves_the_exit_code_as_it_is(tmp_path):
    (tmp_path / "file").touch()
    with open("/dev/full", "w") as full:
        for flags in ([], ["what is that?"]):
            ended = train(tmp_path / "file", *flags, stdout=full, stderr=full)
            assert ended.returncode == BAD_INPUT


KEEP = """
path = pathlib.Path(sys.argv[1])
try:
    train.keep_config(path, "new", restart=int(sys.argv[2]))
except train.ConfigError as error:
    print(error)
"""


@pytest.mark.timeout(60)
def test_a_config_is_kept_whole_or_as_it_was(tmp_path):
    path = tmp_path / "config.gin"
    said = call(KEEP, path, 0, preexec_fn=full_disk)
    assert f"cannot use {path}: " in said and "File too large" in said
    assert list(tmp_path.iterdir()) == []
    path.write_text("old")
    assert f"cannot use {path}: " in call(KEEP, path, 0, preexec_fn=full_disk)
    assert path.read_text() == "old"
    assert call(KEEP, path, 1, preexec_fn=full_disk) == ""  # its first life wrote it
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    assert call(KEEP, path, 0) == "" and path.read_text() == "new"


@pytest.mark.timeout(90)
def test_a_learner_that_cannot_write_its_config_names_it(tmp_path):
    almost_full = partial(full_disk, room=64)  # importing TensorFlow takes a few
    ended = train(tmp_path, job="learner", preexec_fn=almost_full)
    last = ended.stderr.decode().splitlines()[-1]
    assert last.startswith(f"learner/0: --run_dir: cannot use {tmp_path}/config.gin: ")
    assert ended.returncode == BAD_INPUT


# A run of real processes.


def tasks_of(run_dir):
    for process in psutil.process_iter(["cmdline"]):
        if f"--run_dir={run_dir}" in " ".join(process.info["cmdline"] or ()):
            yield process


@contextlib.contextmanager
def launched(run_dir, log):
    """The launcher, in a run of its own; nothing of it is left."""
    command = [sys.executable, "-m", "launch.local", str(CONFIG)]
    command += [f"--run_dir={run_dir}", "--num_actors=1", "--no_final_evaluation"]
    bindings = ("Learning.checkpoint_period_secs = 1.0", "StopConditions.max_env_steps")
    command += [f"--gin_binding={bindings[0]}", f"--gin_binding={bindings[1]} = None"]
    command += ["--gin_binding=StopConditions.target_return = None"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            env=ENVIRONMENT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        for left in tasks_of(run_dir):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        process.wait(10)


def wait_until(predicate, what, secs=90.0):
    deadline = time.monotonic() + secs
    while not predicate():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.1)  # files of other processes cannot be waited for


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_launched_run_outlives_a_full_disk(tmp_path):
    run_dir = tmp_path / "run"
    status = run_dir / "metrics" / "ps-0.jsonl"

    def checkpoints():
        return {p.name for p in (run_dir / "checkpoints").glob("0*") if p.is_dir()}

    def newest():
        lines = status.read_text().splitlines() if status.exists() else ()
        return json.loads(lines[-1]) if lines else {}

    with launched(run_dir, tmp_path / "launcher.log") as launcher:
        wait_until(lambda: len(checkpoints()) > 1, "checkpoints")
        tasks = [p for p in tasks_of(run_dir) if p.pid != launcher.pid]
        assert len(tasks) >= 4
        for task in tasks:
            task.rlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        size, before = status.stat().st_size, newest()["env_steps"]
        time.sleep(5.0)  # nothing can be seen of a run that can write nothing
        assert status.stat().st_size == size
        for task in tasks:
            task.rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        kept = checkpoints()
        wait_until(lambda: status.stat().st_size > size, "lines")
        assert newest()["env_steps"] > before + 100
        wait_until(lambda: checkpoints() - kept, "a checkpoint")
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(60) == 0, (tmp_path / "launcher.log").read_text()
    summary = json.loads((run_dir / "summary.json").read_text())
    assert not summary["failures"].get("learner") and summary["env_steps"] > before
    for counts in summary["channels"].values():
        assert counts["sent"] == counts["received"] + counts["lost"]
    for job in ("ps-0", "learner-0", "memory-0", "actor-0"):
        text = (run_dir / "metrics" / f"{job}.jsonl").read_text()
        assert all(json.loads(line) for line in text.splitlines())
        log = (run_dir / "logs" / f"{job}.log").read_text()
        assert f"{job}.jsonl: [Errno 27]" in log or f"{job}.jsonl has lost" in log
