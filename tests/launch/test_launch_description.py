"""From one description of a run to its tasks."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.bootstrap import ROOT
from launch.description import PORTS, RunDescription, Task, cluster_tasks

RUN = RunDescription(
    Path("/configs/some.gin"),
    Path("/results/run 1"),
    num_ps=2,
    num_memories=2,
    num_actors=3,
    gin_bindings=("A.b = 'c d'",),
)


def flag(task: Task, name: str) -> str:
    (value,) = [a.split("=", 1)[1] for a in task.argv if a.startswith(f"--{name}=")]
    return value


def test_every_task_of_every_job_is_there_once():
    places = [(task.job, task.index) for task in cluster_tasks(RUN)]
    assert places == [
        ("ps", 0),
        ("ps", 1),
        ("memory", 0),
        ("memory", 1),
        ("learner", 0),
        ("actor", 0),
        ("actor", 1),
        ("actor", 2),
    ]


def test_the_command_is_the_training_program_with_its_flags():
    task = cluster_tasks(RUN)[-1]
    assert task.argv[:3] == (sys.executable, "-m", "distrl.train")
    assert flag(task, "job_name") == "actor" and flag(task, "task_index") == "2"
    assert flag(task, "gin_file") == "/configs/some.gin"
    assert flag(task, "gin_binding") == "A.b = 'c d'"
    assert flag(task, "num_actors") == "3"
    assert flag(task, "run_dir") == "/results/run 1"
    assert task.argv[-1] == "--watch_stdin"
    assert "--watch_stdin" not in cluster_tasks(RUN, watched=False)[-1].argv


def test_all_tasks_are_told_the_same_distinct_addresses():
    tasks = cluster_tasks(RUN)
    jobs = ("ps_hosts", "memory_hosts", "learner_hosts")
    assert len({tuple(flag(task, job) for job in jobs) for task in tasks}) == 1
    hosts = [flag(tasks[0], job).split(",") for job in jobs]
    assert [len(of_job) for of_job in hosts] == [2, 2, 1]
    addresses = [address for of_job in hosts for address in of_job]
    assert len(set(addresses)) == 5
    for address in addresses:
        host, port = address.split(":")
        assert host == "127.0.0.1" and int(port) in PORTS


def test_more_servers_than_ports_are_refused():
    with pytest.raises(ValueError, match=str(len(PORTS) + 2)):
        cluster_tasks(RunDescription(Path("a"), Path("b"), num_ps=len(PORTS)))


def test_only_learners_see_gpus():
    for task in cluster_tasks(RUN):
        hidden = task.environment.get("CUDA_VISIBLE_DEVICES")
        assert hidden == (None if task.job == "learner" else "-1")


def test_proxies_are_kept_away_from_the_cluster(monkeypatch):
    monkeypatch.setenv("no_proxy", "a.example,127.0.0.1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    environment = cluster_tasks(RUN)[0].environment
    assert environment["no_proxy"] == "a.example,127.0.0.1,localhost"
    assert environment["NO_PROXY"] == "127.0.0.1,localhost"


def test_tensorflow_is_quiet_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    assert cluster_tasks(RUN)[0].environment["TF_CPP_MIN_LOG_LEVEL"] == "2"
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    assert cluster_tasks(RUN)[0].environment["TF_CPP_MIN_LOG_LEVEL"] == "0"


def test_code_comes_from_this_repository_then_from_where_the_user_said(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"/theirs{os.pathsep}{ROOT}")
    paths = cluster_tasks(RUN)[0].environment["PYTHONPATH"].split(os.pathsep)
    assert paths[:2] == [str(ROOT), "/theirs"] and paths.count(str(ROOT)) == 1


def test_a_shell_understands_the_printed_line():
    program = (sys.executable, "-c", "import sys, os; print(sys.argv[1:], os.environ)")
    task = cluster_tasks(RUN, program)[0]
    shown = subprocess.run(
        ["sh", "-c", task.shell_line()], capture_output=True, text=True, check=True
    ).stdout
    assert str(list(task.argv[3:])) in shown
    assert "'CUDA_VISIBLE_DEVICES': '-1'" in shown
    assert shlex.split(task.shell_line())[-len(task.argv) :] == list(task.argv)
