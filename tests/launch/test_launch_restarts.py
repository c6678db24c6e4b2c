"""Tasks that are started again, or left out, with fake tasks."""

from __future__ import annotations

import os
import queue
import signal

import pytest

from distrl.lifecycle.failure_policy import FAIL, IGNORE, RESTART, FailurePolicies
from launch import local, processes
from launch.description import Task
from launch.processes import TaskExit
from launch.restarts import BAD_INPUT, DIVERGED, ENDED_BY_OTHERS, Restarts
from launch.watch import Limits

GENTLE = Limits(tick_secs=0.05)  # for runs that end by themselves
SHORT = {"short": True, "until": "life-1/actor 1"}


def task_entry(launch, job="actor", index=1):
    (found,) = [
        {key: entry[key] for key in ("exit_code", "restarts")}
        for entry in launch.summary()["tasks"]
        if (entry["job"], entry["task"]) == (job, index)
    ]
    return found


def run(launch, plan, *flags):
    return launch.run(plan, "--no_final_evaluation", *flags, limits=GENTLE)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "how, words", [("exit 1", "exit code 1"), ("killed", "exit code -9 (SIGKILL)")]
)
def test_a_failed_actor_is_started_again_and_the_run_goes_on(
    launch, capsys, how, words
):
    assert run(launch, {"actor 1": [how], **SHORT}) == 0
    line = f"actor 1 failed with {words}; starting it again (1 of 20 an hour)"
    assert line in capsys.readouterr().err.splitlines()
    assert task_entry(launch) == {"exit_code": 0, "restarts": 1}
    assert task_entry(launch, index=0) == {"exit_code": 0, "restarts": 0}
    assert len(launch.summary()["tasks"]) == 5


@pytest.mark.timeout(60)
def test_each_start_has_its_number_and_the_same_log(launch, capsys):
    plan = {"actor 1": ["exit 1", "exit 7"], "short": True, "until": "life-2/actor 1"}
    assert run(launch, plan) == 0
    assert task_entry(launch) == {"exit_code": 0, "restarts": 2}
    assert "exit code 7; starting it again (2 of 20" in capsys.readouterr().err
    log = (launch.run_dir / "logs" / "actor-1.log").read_text()
    assert log.count("actor 1 line 0\n") == 2


@pytest.mark.timeout(60)
def test_more_failures_than_allowed_end_the_run(launch, capsys):
    plan = {"actor 0": "exit 1", "actor 1": ["exit 1"]}
    assert run(launch, plan, "--on_failure=actor=restart(2)") == 1
    err = capsys.readouterr().err
    assert "(1 of 2 an hour)" in err and "(2 of 2 an hour)" in err
    assert "3 failures of job actor within an hour, 2 are allowed; ending" in err
    assert "the last lines of its log" in err


@pytest.mark.timeout(60)
def test_an_ignored_actor_is_left_out(launch, capsys):
    plan = {"actor 1": "exit 4", "short": True, "until_gone": 1}
    assert run(launch, plan, "--on_failure=actor=ignore") == 0
    assert "exit code 4; the run goes on without it" in capsys.readouterr().err
    assert task_entry(launch) == {"exit_code": 4, "restarts": 0}


@pytest.mark.timeout(60)
def test_policies_of_a_gin_file_are_those_of_the_launcher_too(launch, capsys):
    """It hears of them by the status lines of ps 0."""
    plan = {"actor 1": "exit 4", "short": True, "until_gone": 1}
    assert run(launch, {**plan, "policies": {"actor": "ignore"}}) == 0
    assert "exit code 4; the run goes on without it" in capsys.readouterr().err


@pytest.mark.timeout(60)
def test_bad_input_is_not_tried_again(launch, capsys):
    assert run(launch, {"actor 1": "exit 2"}) == 1
    assert "actor 1 failed with exit code 2; ending the run" in capsys.readouterr().err


@pytest.mark.timeout(60)
def test_a_run_that_is_ending_starts_nobody_again(launch, capsys):
    plan = {"actor 1": ["fall 6"], "short": True, "stopping": True}
    assert run(launch, plan) == 0
    assert "exit code 6; the run ends without it" in capsys.readouterr().err
    assert task_entry(launch) == {"exit_code": 6, "restarts": 0}


@pytest.mark.timeout(60)
def test_a_run_that_was_asked_to_end_starts_nobody_again(launch, capsys):
    plan = {"memory 0": "exit 1", "actor 1": ["fall 6"]}
    assert run(launch, plan, "--on_failure=memory=fail") == 1
    err = capsys.readouterr().err
    assert "memory 0 failed with exit code 1; ending the run" in err
    assert "exit code 6; starting" not in err
    assert task_entry(launch) == {"exit_code": 6, "restarts": 0}


@pytest.mark.timeout(60)
def test_a_lost_task_is_killed_and_started_again_once(launch, capsys):
    """ps 0 goes on saying that it is lost; that was its first process."""
    plan = {"actor 1": ["deaf"], "lost": "actor/1", **SHORT}
    assert run(launch, plan) == 0
    err = capsys.readouterr().err
    assert err.count("actor 1 is lost; killing it") == 1
    assert err.count("exit code -9 (SIGKILL); starting it again (1 of 20") == 1
    assert task_entry(launch) == {"exit_code": 0, "restarts": 1}


@pytest.mark.timeout(60)
def test_who_comes_when_ps_0_has_left_is_ended(launch):
    plan = {"actor 1": ["exit 1", "linger"], **SHORT}
    assert run(launch, plan) == 0
    assert task_entry(launch) == {"exit_code": 0, "restarts": 1}


@pytest.mark.timeout(60)
def test_ps_0_is_started_again_while_there_is_a_learner_to_fill_it(launch, capsys):
    assert run(launch, {"ps 0": ["killed"], "short": True}) == 0
    err = capsys.readouterr().err
    assert "ps 0 failed with exit code -9 (SIGKILL); starting it again (1 of 5" in err
    assert task_entry(launch, "ps", 0) == {"exit_code": 0, "restarts": 1}


@pytest.mark.timeout(60)
def test_no_other_ps_0_follows_once_the_learner_has_left(launch, capsys, monkeypatch):
    """Nobody could fill it. An actor that stays has kept the first one there."""

    class Events(queue.SimpleQueue):
        """Kills ps 0 when the launcher hears of the learner's end."""

        def get(self, *args, **options):
            event = super().get(*args, **options)
            if isinstance(event, TaskExit) and event.task.name == "learner 0":
                assert event.exit_code == 0
                pid = (launch.run_dir / "up" / "ps 0").read_text()
                os.kill(int(pid), signal.SIGKILL)
            return event

    monkeypatch.setattr(local, "Events", Events)
    limits = Limits(failure_grace_secs=0.3, kill_secs=0.1, tick_secs=0.05)
    plan = {"actor 1": "deaf", "short": True}
    assert launch.run(plan, "--no_final_evaluation", limits=limits) == 1
    err = capsys.readouterr().err
    assert "ps 0 failed with exit code -9 (SIGKILL); ending the run" in err
    assert "starting it again" not in err
    assert task_entry(launch, "ps", 0) == {"exit_code": -9, "restarts": 0}
    assert task_entry(launch, "learner", 0) == {"exit_code": 0, "restarts": 0}


@pytest.mark.timeout(60)
def test_children_of_a_failed_task_do_not_outlive_it(launch):
    plan = {"actor 1": ["orphan 1"], **SHORT}
    assert run(launch, plan) == 0  # the fixture looks for them


@pytest.mark.timeout(60)
def test_a_task_that_cannot_be_started_again_ends_the_run(launch, capsys, monkeypatch):
    def fail(self, task):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(processes.Processes, "start_again", fail)
    assert run(launch, {"actor 1": ["exit 1"]}) == 1
    err = capsys.readouterr().err
    assert "actor 1 cannot be started again: no more processes" in err
    assert "actor 1 failed with exit code 1; ending the run" in err


# Decisions.


def exit_of(job="actor", index=0, code=1):
    return TaskExit(Task(job, index, (), {}), code, 0.0)


@pytest.mark.parametrize(
    "event, ending, action",
    [
        (exit_of(), False, RESTART),
        (exit_of(), True, IGNORE),
        (exit_of(code=-9), False, RESTART),
        (exit_of(code=BAD_INPUT), False, FAIL),
        (exit_of(code=ENDED_BY_OTHERS), False, FAIL),
        (exit_of(code=ENDED_BY_OTHERS), True, FAIL),
        (exit_of("memory"), False, IGNORE),
        (exit_of("memory"), True, IGNORE),
        (exit_of("learner"), False, RESTART),
        (exit_of("learner"), True, RESTART),  # it sums up the run
        (exit_of("learner", code=DIVERGED), False, FAIL),
        (exit_of("ps", 1), False, RESTART),
        (exit_of("ps", 0), True, RESTART),  # nobody ends without it
    ],
)
def test_decisions(event, ending, action):
    policies = FailurePolicies(memory="ignore", ps="restart(1)")
    assert Restarts(policies).decide(event, ending).action == action


def test_a_task_knows_how_often_it_was_started():
    task = Task("actor", 0, ("run", "--flag"), {})
    assert task.command == ("run", "--flag")
    assert task.again().again().command == ("run", "--flag", "--restart=2")
    assert task.again().log_name == task.log_name and task.restart == 0
