"""What happens when something goes wrong in a real run."""

from __future__ import annotations

import os
import signal
import socket

import pytest
from conftest import SMALL, ByHand

FAILING_ENVIRONMENT = '''
import gymnasium

class Failing(gymnasium.Wrapper):
    """CartPole that breaks in its 200th step."""

    def __init__(self, render_mode=None):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 200:
            raise OSError("the simulator broke")
        return super().step(action)

gymnasium.register("Failing-v0", Failing)
'''


def pid_of(place, job: str) -> int:
    import psutil

    return next(
        pid
        for pid in place.tasks_alive()
        if f"--job_name={job}" in psutil.Process(pid).cmdline()
    )


@pytest.mark.timeout(120)
def test_task_that_raises_ends_the_run_with_its_traceback(place):
    (place.folder / "failing_environment.py").write_text(FAILING_ENVIRONMENT)
    binding = 'gymnasium_environment.id = "failing_environment:Failing-v0"'
    flags = ("--num_actors=1", "--on_failure=actor=fail")
    launcher = place.launch(*flags, bindings=(*SMALL, binding))
    assert launcher.wait(90) == 1
    last = "\n".join(place.text("launcher.log").splitlines()[-75:])
    assert "actor 0" in last and "the simulator broke" in last and "Traceback" in last
    assert "actor/0" in place.summary()["stop_reason"]
    place.check_nothing_left()


@pytest.mark.timeout(150)
@pytest.mark.parametrize("job", ["memory", "ps"])
def test_killed_task_ends_the_run_in_bounded_time(place, job):
    launcher = place.launch("--num_actors=1", f"--on_failure={job}=fail")
    place.wait_until(lambda: place.status().get("learner_steps", 0) > 0, "training")
    os.kill(pid_of(place, job), signal.SIGKILL)
    assert launcher.wait(40) == 1
    last = place.text("launcher.log")
    assert f"{job} 0 failed" in last and "SIGKILL" in last
    place.check_nothing_left()


@pytest.mark.timeout(150)
def test_stopped_task_by_hand_is_lost_and_named(place):
    strict = [f"FailurePolicies.{job} = 'fail'" for job in ("actor", "ps")]
    bindings = (*SMALL, "Timeouts.heartbeat_secs = 5.0", *strict)
    run = ByHand(place, num_actors=1, bindings=bindings)
    jobs = ("ps", "memory", "learner", "actor")
    started = {job: run.start(job) for job in jobs}
    place.wait_until(lambda: place.status().get("learner_steps", 0) > 0, "training")
    started["actor"].send_signal(signal.SIGSTOP)
    for job in ("learner", "memory", "ps"):
        assert started[job].wait(60) == 3, place.text(f"{job}-0.log")
        assert "actor/0 is lost" in place.text(f"{job}-0.log")
    started["actor"].send_signal(signal.SIGCONT)
    assert started["actor"].wait(40) == 1
    place.check_nothing_left()


@pytest.mark.timeout(150)
def test_interrupted_launcher_ends_the_run_in_order(place):
    launcher = place.launch("--num_actors=1")
    place.wait_until(lambda: place.status().get("learner_steps", 0) > 0, "training")
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(40) == 0, place.text("launcher.log")
    assert place.summary()["stop_reason"] == "SIGTERM at ps/0"
    place.check_nothing_left()


@pytest.mark.timeout(150)
def test_killed_launcher_leaves_no_process(place):
    launcher = place.launch("--num_actors=1")
    place.wait_until(lambda: place.status().get("learner_steps", 0) > 0, "training")
    launcher.send_signal(signal.SIGKILL)
    launcher.wait(10)
    place.wait_until(lambda: not place.tasks_alive(), "all tasks gone", 30.0)
    place.check_nothing_left()


@pytest.mark.timeout(60)
def test_port_in_use_is_named(place):
    run = ByHand(place)
    with socket.socket() as taken:
        host, port = run.hosts["memory"].split(":")
        taken.bind((host, int(port)))
        taken.listen()
        assert run.start("memory").wait(40) == 2
    text = place.text("memory-0.log")
    assert "memory/0" in text and run.hosts["memory"] in text


@pytest.mark.timeout(60)
def test_ps_that_never_comes_up_is_named(place):
    run = ByHand(place, bindings=(*SMALL, "Timeouts.startup_secs = 3.0"))
    assert run.start("learner").wait(45) == 1
    last = place.text("learner-0.log").splitlines()[-1]
    assert "ps/0" in last and run.hosts["ps"] in last


@pytest.mark.timeout(60)
def test_tasks_that_never_come_up_are_named(place):
    run = ByHand(place, bindings=(*SMALL, "Timeouts.startup_secs = 3.0"))
    assert run.start("ps").wait(45) == 3
    last = place.text("ps-0.log").splitlines()[-1]
    for name in ("memory/0", "learner/0", run.hosts["memory"], "an actor"):
        assert name in last


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "more, expected",
    [
        ("--gin_binding=Acting.n_stepp = 3", "n_stepp"),
        ("--gin_binding=Actingg.n_step = 3", "Actingg"),
        ("--gin_binding=Acting.n_step = 0", "Acting.n_step"),
        ('--gin_binding=gymnasium_environment.id = "CartPol-v1"', "CartPol-v1"),
        ("--gin_binding=Replay.tolerance = 10", "tolerance"),
        ("--gin_binding=Replay.capacity = 100000000000", "100000000000"),
        ("--memory_hosts=nonsense", "nonsense"),
        ("--learner_hosts=127.0.0.1:1,127.0.0.1:2", "2 learners"),
        ("--task_index=5", "5"),
        ("--gin_file=/nowhere.gin", "/nowhere.gin"),
    ],
)
def test_bad_input_is_one_clear_line(place, more, expected):
    assert ByHand(place).start("memory", 0, more).wait(40) == 2
    text = place.text("memory-0.log")
    assert "Traceback" not in text
    assert expected in text.splitlines()[-1]


@pytest.mark.timeout(100)
def test_launcher_interrupted_during_start_up_ends_in_order(place):
    launcher = place.launch("--num_actors=2")
    last = place.run_dir / "logs" / "actor-1.log"
    place.wait_until(last.exists, "tasks started")
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(50) in (0, 130), place.text("launcher.log")
    place.check_nothing_left()


@pytest.mark.timeout(100)
def test_run_stopped_in_its_start_up_tells_those_who_come(place):
    run = ByHand(place)
    ps = run.start("ps")
    place.wait_until(lambda: place.status().get("phase") == "starting", "ps 0 is up")
    ps.send_signal(signal.SIGTERM)
    others = [run.start(job) for job in ("memory", "learner", "actor")]
    others.append(run.start("actor", 1))
    for process in [*others, ps]:
        assert process.wait(60) == 0
    assert "the run is ending" in place.text("learner-0.log")
    place.check_nothing_left()
