"""Signals to a real launcher process."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from launch.watch import Limits

GENTLE = Limits()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_run_in_order(launch, start_launcher, number):
    launcher = start_launcher({}, GENTLE)
    launcher.wait_for_tasks()
    launcher.process.send_signal(number)
    code, out, err = launcher.end()
    assert code == 0
    assert "stopping; press Ctrl-C again to end at once" in err
    assert "no final evaluation: the run was stopped" in err
    summary = launch.summary()
    assert [task["exit_code"] for task in summary["tasks"]] == [0] * 5
    assert summary["final_evaluation"] is None and summary["farewell_secs"] >= 1.0
    assert "max_env_steps" in out


def test_the_second_signal_ends_at_once(launch, start_launcher):
    launcher = start_launcher({"learner 0": "deaf"}, GENTLE)
    launcher.wait_for_tasks()
    launcher.process.send_signal(signal.SIGINT)
    launcher.wait_for_tasks("stop", 1)  # the first one has been passed on
    start = time.monotonic()
    launcher.process.send_signal(signal.SIGINT)
    code, _, err = launcher.end()
    assert code == 130 and time.monotonic() - start < 10
    assert "ended at once" in err and "Traceback" not in err


def test_a_stop_that_nobody_follows_is_bounded(launch, start_launcher):
    launcher = start_launcher({"ps 0": "deaf"})
    launcher.wait_for_tasks()
    launcher.process.send_signal(signal.SIGINT)
    code, _, err = launcher.end()
    assert code == 1
    assert "had to be ended from outside: ps 0" in err


def test_a_stop_before_ps_0_is_up(launch, start_launcher):
    launcher = start_launcher({"ps 0": "early"}, GENTLE)
    launcher.wait_for_tasks()
    launcher.process.send_signal(signal.SIGINT)
    code, _, err = launcher.end()
    assert code == 130 and "failed" not in err


def test_a_failure_while_stopping_is_a_failure(launch, start_launcher):
    flags = "--on_failure=memory=fail"
    launcher = start_launcher({"memory 0": "follow 6"}, GENTLE, flags)
    launcher.wait_for_tasks()
    launcher.process.send_signal(signal.SIGINT)
    code, _, err = launcher.end()
    assert code == 1 and "memory 0 failed with exit code 6" in err


def test_a_killed_task_is_a_failure(launch, start_launcher):
    launcher = start_launcher({}, GENTLE, "--on_failure=actor=fail")
    launcher.wait_for_tasks()
    psutil.Process(int((launch.run_dir / "up" / "actor 0").read_text())).kill()
    (launch.run_dir / "done").mkdir(exist_ok=True)
    (launch.run_dir / "done" / "actor 0").touch()  # or ps 0 would wait for it
    code, _, err = launcher.end()
    assert code == 1 and "actor 0 failed with exit code -9 (SIGKILL)" in err


def test_tasks_end_when_the_launcher_is_killed(launch, start_launcher):
    launcher = start_launcher({}, GENTLE)
    launcher.wait_for_tasks()
    tasks = [psutil.Process(pid) for pid in launch.pids()]
    launcher.process.kill()
    launcher.end()
    _, left = psutil.wait_procs(tasks, timeout=10)
    assert not [task for task in left if task.status() != psutil.STATUS_ZOMBIE]


def test_tasks_do_not_share_the_session_of_the_launcher(launch, start_launcher):
    launcher = start_launcher({}, GENTLE)
    launcher.wait_for_tasks()
    pids = launch.pids()
    assert [os.getsid(pid) for pid in pids] == pids
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.end()[0] == 0
