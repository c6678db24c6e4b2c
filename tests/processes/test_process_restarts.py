"""Actors that are killed, or stopped, in a real run, which reaches its goal."""

from __future__ import annotations

import functools
import json
import os
import signal

import psutil
import pytest
from conftest import SMALL


def pid_of_actor(place, index: int) -> int:
    (pid,) = [
        pid
        for pid in place.tasks_alive()
        if {"--job_name=actor", f"--task_index={index}"}
        <= set(psutil.Process(pid).cmdline())
    ]
    return pid


def has_shipped(place, index: int) -> bool:
    path = place.run_dir / "metrics" / f"actor-{index}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return (
        json.loads((lines or ["{}"])[-1]).get("totals", {}).get("sent/experience", 0)
        > 0
    )


@pytest.mark.timeout(300)
def test_killed_and_stopped_actors_are_started_again(place):
    launcher = place.launch(
        "--num_actors=3",
        "--max_seconds=16",
        "--no_final_evaluation",
        bindings=(*SMALL, "Timeouts.heartbeat_secs = 5.0"),
    )
    for index in (1, 2):
        shipped = functools.partial(has_shipped, place, index)
        place.wait_until(shipped, f"actor {index} has shipped", 120.0)
    os.kill(pid_of_actor(place, 1), signal.SIGKILL)
    os.kill(pid_of_actor(place, 2), signal.SIGSTOP)
    assert launcher.wait(120) == 0, place.text("launcher.log")
    said = place.text("launcher.log")
    again = "failed with exit code -9 (SIGKILL); starting it again"
    assert f"actor 1 {again} (1 of 20 an hour)" in said
    assert "actor 2 is lost; killing it" in said and f"actor 2 {again}" in said
    summary = place.summary()
    assert summary["stop_reason"] == "max_seconds=16.0 reached"
    tasks = {(t["job"], t["task"]): t for t in summary["tasks"]}
    assert len(tasks) == 6
    assert {t["exit_code"] for t in tasks.values()} == {0}
    restarts = [tasks["actor", index]["restarts"] for index in range(3)]
    assert restarts == [0, 1, 1]
    assert summary["failures"] == {
        "ps": 0,
        "memory": 0,
        "learner": 0,
        "actor": 2,
        "evaluator": 0,
    }
    for name, counts in summary["channels"].items():
        assert counts["sent"] == counts["received"] + counts["lost"], (name, counts)
    assert summary["rows"]["inserted"] == summary["channels"]["experience"]["received"]
    place.check_nothing_left()
