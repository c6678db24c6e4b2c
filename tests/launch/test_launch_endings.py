"""How a launch ends, with fake tasks."""

from __future__ import annotations

import time

import pytest

from launch import processes
from launch.watch import Limits

GENTLE = Limits(tick_secs=0.05)  # for runs that end by themselves
FAIL = "--on_failure=actor=fail"


def test_a_run_in_order_is_evaluated_and_summed_up(launch, capsys):
    assert launch.run({"short": True}, "--seed=7", limits=GENTLE) == 0
    summary = launch.summary()
    codes = {(t["job"], t["task"]): t["exit_code"] for t in summary["tasks"]}
    jobs = [("ps", 0), ("memory", 0), ("learner", 0), ("actor", 0), ("actor", 1)]
    assert codes == {job: 0 for job in jobs}
    assert 1.0 <= summary["farewell_secs"] < 10.0  # the fake stopped a second before
    assert summary["final_evaluation"]["checkpoint"] == "best"
    assert summary["final_evaluation"]["mean_return"] == 500.0
    assert summary["final_evaluation"]["episodes"] == 100
    assert summary["final_evaluation"]["seed"] == "7"
    assert summary["final_evaluation_newest"]["checkpoint"] == "newest"
    assert summary["stop_reason"] == "max_env_steps"
    printed = capsys.readouterr().out
    for part in ("max_env_steps", "500.0", "experience 0", "summary.json"):
        assert part in printed


def test_progress_shows_the_newest_whole_line_and_is_closed(launch):
    assert launch.run({"short": True}, "--no_final_evaluation", limits=GENTLE) == 0
    assert launch.progress.shown == [{"env_steps": 2}]
    assert launch.progress.closed


def test_without_a_final_evaluation(launch, capsys):
    assert launch.run({"short": True}, "--no_final_evaluation", limits=GENTLE) == 0
    assert launch.summary()["final_evaluation"] is None
    assert "no final evaluation" in capsys.readouterr().err


def test_a_failed_evaluation_is_told_and_keeps_the_rest(launch, capsys):
    assert launch.run({"short": True}, evaluation="fails", limits=GENTLE) == 1
    assert launch.summary()["tasks"] and launch.summary()["final_evaluation"] is None
    assert "no such checkpoint" in capsys.readouterr().err


def test_an_evaluation_without_end_is_bounded(launch, capsys):
    limits = Limits(evaluation_secs=0.3)
    assert launch.run({"short": True}, evaluation="hangs", limits=limits) == 1
    assert "no end within" in capsys.readouterr().err


def test_a_failure_ends_the_run_and_is_explained(launch, capsys):
    assert launch.run({"actor 1": "exit 1"}, FAIL, limits=GENTLE) == 1
    err = capsys.readouterr().err
    _, _, report = err.partition(
        "actor 1 failed with exit code 1; the last lines of its log:\n"
    )
    assert report.splitlines() == [f"actor 1 line {n}" for n in range(40, 100)]
    codes = {(t["job"], t["task"]): t["exit_code"] for t in launch.summary()["tasks"]}
    assert codes[("actor", 1)] == 1 and codes[("ps", 0)] == 0
    assert launch.summary()["final_evaluation"] is None


def test_a_victim_is_not_named_when_there_is_a_cause(launch, capsys):
    # The learner's end is noticed first, the reason for it after that.
    plan = {"learner 0": "exit 3", "actor 0": "follow 3", "memory 0": "follow 7"}
    assert launch.run(plan, limits=GENTLE) == 1
    err = capsys.readouterr().err
    assert "memory 0 failed with exit code 7; the last lines of its log" in err
    assert "learner 0 ended because of another task's failure" in err
    assert "learner 0 failed" not in err and "actor 0" not in err


def test_victims_alone_are_still_a_failure(launch, capsys):
    assert launch.run({"memory 0": "exit 3"}, limits=GENTLE) == 1
    assert "memory 0 ended because of another" in capsys.readouterr().err


@pytest.mark.parametrize("deaf", ["ps 0", "actor 0"])
def test_what_does_not_end_after_a_failure_is_killed(launch, deaf):
    start = time.monotonic()
    assert launch.run({"actor 1": "exit 1", deaf: "deaf"}, FAIL) == 1
    assert time.monotonic() - start < 10
    codes = {f"{t['job']} {t['task']}": t["exit_code"] for t in _tasks(launch)}
    assert codes.get(deaf, -9) == -9


def test_a_failure_before_ps_0_is_up_ends_at_once(launch, capsys):
    plan = {"ps 0": "early", "learner 0": "exit 2"}
    assert launch.run(plan, limits=Limits(failure_grace_secs=30)) == 1
    assert "learner 0 failed with exit code 2" in capsys.readouterr().err


def test_who_stays_after_ps_0_has_left_is_ended(launch, capsys):
    plan = {"short": True, "actor 0": "linger"}
    assert launch.run(plan) == 1
    assert "had to be ended from outside: actor 0" in capsys.readouterr().err


def test_children_that_a_task_leaves_behind_are_ended(launch, monkeypatch):
    monkeypatch.setattr(processes, "LEFTOVER_SECS", 0.1)
    plan = {"short": True, "actor 1": "orphan"}
    assert launch.run(plan, "--no_final_evaluation", limits=GENTLE) == 0
    assert len(launch.pids("children")) == 1


def test_an_error_in_the_launcher_leaves_nothing(launch, monkeypatch):
    def fail(status):
        launch.wait_for("up", 5)
        raise RuntimeError("the terminal is gone")

    monkeypatch.setattr(launch.progress, "update", fail)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="the terminal is gone"):
        launch.run({"actor 0": "deaf"})
    assert time.monotonic() - start < 8
    assert launch.progress.closed


def test_a_missing_summary_is_an_error(launch, capsys):
    assert launch.run({"short": True, "learner 0": "idle"}, limits=GENTLE) == 1
    assert "there is no summary" in capsys.readouterr().err


def test_each_task_has_its_log(launch):
    launch.run({"actor 1": "exit 1"}, FAIL, "--num_memories=2", limits=GENTLE)
    names = {path.name for path in (launch.run_dir / "logs").iterdir()}
    jobs = ["ps-0", "memory-0", "memory-1", "learner-0", "actor-0", "actor-1"]
    assert names == {f"{job}.log" for job in jobs}


def _tasks(launch):
    path = launch.run_dir / "summary.json"
    return launch.summary()["tasks"] if path.exists() else []
