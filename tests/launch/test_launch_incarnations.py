"""Each start of a task has a larger incarnation, whatever the clock does."""

import sys
import time

import pytest

from launch.description import Task
from launch.processes import Events, Processes

HOUR_NS = 3600 * 10**9


@pytest.mark.timeout(30)
def test_a_clock_that_goes_back_does_not_make_a_newer_process_older(
    tmp_path, monkeypatch
):
    nap = (sys.executable, "-c", "import time; time.sleep(60)")
    task, events = Task("actor", 0, nap, {}, numbered=True), Events()
    with Processes([task], tmp_path, events) as processes:
        processes.start()
        (first,) = processes._started
        now = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now - HOUR_NS)
        assert processes.kill_if_older("actor", 0, first.incarnation)
        assert events.get(timeout=10).exit_code == -9
        processes.start_again(task.again())
        assert not processes.kill_if_older("actor", 0, first.incarnation)
        (second,) = processes._started
        assert f"--incarnation={second.incarnation}" in second.process.args
        assert processes.kill_if_older("actor", 0, second.incarnation)
        assert events.get(timeout=10).exit_code == -9
