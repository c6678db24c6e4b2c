"""What the benchmark of unrolls measures of a run and of peers, with fakes of both."""

import argparse
import json
import pathlib
import sys

import fake_launcher
import pytest

from distrl import configurables
from distrl.benchmark import sample_factory_appo, unroll_peers, unrolls, whole_runs
from distrl.benchmark.measuring import json_lines

END = 1000.0


class FixedCpu:
    """Half a core."""

    def between(self, begin, end):
        return (end - begin) / 2


def test_a_run_is_measured_in_its_last_secs(tmp_path):
    fake_launcher.write(tmp_path, END)
    record = unrolls.record_of(tmp_path, FixedCpu(), 8.0)
    assert record == pytest.approx(
        {
            "system": "distrl",
            "secs": 8.0,
            "env_steps_per_sec": 200.0,
            "learner_steps_per_sec": 2.0,
            "cpu_secs_per_1000_env_steps": 1000 * 4 / 1600,
            "learner_wait_fraction": 0.75,
            "actor_wait_fraction": 0.0,
            "policy_lag": fake_launcher.LAG,
        }
    )


def test_totals_are_linear_between_lines(tmp_path):
    fake_launcher.write(tmp_path, END)
    lines = whole_runs.task_lines(tmp_path, "actor-0")
    assert unrolls._gain(lines, "env_steps", END - 4.25, END - 1.75) == 250.0


@pytest.mark.parametrize("secs", [10.5, 30.0])
def test_a_run_whose_learner_began_too_late_is_refused(tmp_path, secs):
    fake_launcher.write(tmp_path, END)
    with pytest.raises(RuntimeError, match=f"ahead of the last {secs} s"):
        unrolls.record_of(tmp_path, FixedCpu(), secs)


@pytest.mark.parametrize(("task", "num_envs"), [("cartpole", 10), ("pong", 4)])
@pytest.mark.timeout(120)
def test_our_run_is_that_of_the_peers(request, task, num_envs):
    lines = ["ImpalaAgent.num_groups = 2", "StopConditions.max_seconds = 1"]
    given = [f"--gin_binding={line}" for line in lines]
    flags = unrolls.parser().parse_args([f"--task={task}", *given])
    config = request.config.rootpath / unrolls.CONFIGS[task]
    experiment = configurables.read_experiment(config, unrolls.bindings(flags))
    agent, stop = experiment.agent, experiment.run.stop
    assert (agent.num_envs, agent.num_groups) == (num_envs, 2)
    assert agent.unrolls.unroll_length == 20
    assert agent.unrolls.evaluation_period_secs > 1e6
    batches = agent.batches
    assert (batches.batch_size, batches.batches_per_message) == (25, 1)
    assert (batches.replay_proportion, batches.replay_capacity) == (0, 0)
    assert agent.learning.publish_period == 1
    assert (stop.max_env_steps, stop.target_return) == (None, None)
    assert stop.max_seconds == 38.0  # the end is not for the user to say
    text = configurables.operative_text()
    torso = {"cartpole": "orthogonal_mlp", "pong": "nature_cnn"}[task]
    assert f"policy_value_network.torso = @{torso}\n" in text
    assert "policy_value_network.shared = True" in text


PEER = """
import json, sys, time
time.sleep(0.3)
print(json.dumps({"system": "Peer 1.0 of " + sys.argv[2], "begin": time.time() - 0.2,
                  "end": time.time(), "env_steps": 100, "learner_steps": 10,
                  "given": sys.argv}))
"""


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """A run of the launcher's stand-in, and an interpreter that has every peer."""
    monkeypatch.setattr(whole_runs, "_LAUNCHER", "fake_launcher")
    monkeypatch.setattr(whole_runs, "_SAMPLE_SECS", 0.05)
    monkeypatch.setattr(unrolls, "end_on_sigterm", lambda: None)
    monkeypatch.setattr(unrolls, "our_run", our_run_without_cpu(unrolls.our_run))
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parent))
    monkeypatch.setenv("FAKE_LAUNCHER_FLAGS", str(tmp_path / "flags"))
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{PEER}")
    python.chmod(0o755)
    return python


def our_run_without_cpu(our_run):
    """The fake run lies in the past, when nobody sampled."""

    def measured(flags):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(whole_runs.TreeCpu, "between", FixedCpu.between)
            return our_run(flags)

    return measured


@pytest.mark.timeout(60)
def test_a_line_a_system(fakes, tmp_path, capfd):
    peers = [f"--peer={name}={fakes}" for name in ("rllib", "sample_factory")]
    unrolls.main(["--secs=8", "--gin_binding=a.b = 1", "--num_actors=3", *peers])
    printed = capfd.readouterr().out
    ours, *others = json_lines(printed)
    assert ours["system"] == "distrl" and ours["policy_lag"] == fake_launcher.LAG
    programs = ("rllib_impala", "sample_factory_appo")
    systems = [f"Peer 1.0 of distrl.benchmark.{name}" for name in programs]
    assert [other["system"] for other in others] == systems
    for other in others:
        assert other["env_steps_per_sec"] == pytest.approx(500, rel=0.05)
        assert other["learner_steps_per_sec"] == pytest.approx(50, rel=0.05)
        assert other["cpu_secs_per_1000_env_steps"] >= 0
        assert list(other) == list(ours)
    flags = json.loads((tmp_path / "flags").read_text())
    assert flags["num_actors"] == 3 and "a.b = 1" in flags["gin_binding"]
    assert flags["file"].endswith("configs/impala/cartpole.gin")


@pytest.mark.timeout(60)
def test_what_was_measured_is_printed_when_a_peer_fails(fakes, capfd):
    fakes.write_text("#!/bin/sh\nexit 4\n")
    with pytest.raises(SystemExit, match="1"):
        unrolls.main(["--secs=8", f"--peer=rllib={fakes}"])
    printed = capfd.readouterr()
    assert [r["system"] for r in json_lines(printed.out)] == ["distrl"]
    assert "exit code 4" in printed.err


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        *((f"--peer={v}", f"got {v!r}") for v in ("rllib", "rllib=", "acme=p", "=p")),
        ("--secs=0", "in 0.0 s"),
        ("--task=chess", "'chess'"),
    ],
)
def test_bad_input_is_named_and_nothing_runs(flag, words, capsys, monkeypatch):
    monkeypatch.setattr(unrolls, "end_on_sigterm", lambda: None)
    monkeypatch.setattr(unrolls, "our_run", lambda flags: pytest.fail("it runs"))
    with pytest.raises(SystemExit, match="2"):
        unrolls.main([flag])
    assert words in capsys.readouterr().err


def test_the_window_of_a_peer_leaves_out_start_and_warm_up(monkeypatch):
    now = 100.0
    monkeypatch.setattr(unroll_peers.time, "time", lambda: now)
    window = unroll_peers.SteadyWindow(warm_up_secs=2.0, secs=3.0)
    with pytest.raises(RuntimeError, match="Peer ended ahead of"):
        window.record("Peer")
    while not window.over:
        # Samples at once, and a learner step a second from 105 on.
        window.note(int(10 * (now - 100)), max(0, int(now - 104)))
        now += 0.5
    window.note(10**6, 10**6)  # too late
    assert window.record("Peer") == {
        "system": "Peer",
        "begin": 107.0,
        "end": 110.0,
        "env_steps": 30,
        "learner_steps": 3,
    }


@pytest.mark.parametrize(("task", "num_envs"), [("cartpole", 10), ("pong", 4)])
def test_sample_factory_gets_the_same_unrolls(task, num_envs):
    flags = argparse.Namespace(task=task, num_actors=3)
    words = " ".join(sample_factory_appo.arguments(flags)) + " "
    for setting in (
        *(f"env {task}", "rollout 20", "batch_size 500", "num_workers 3"),
        *(f"num_envs_per_worker {num_envs}", "async_rl True", "num_epochs 1"),
    ):
        assert f"--{setting} " in words
