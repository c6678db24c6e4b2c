"""What the benchmark of rounds makes of a summary, with fakes of run and peer."""

import argparse
import json
import pathlib
import sys
import tempfile

import fake_launcher
import pytest

from distrl import configurables
from distrl.benchmark import rounds, whole_runs
from distrl.benchmark.measuring import json_lines

PEER = """
import json, sys
keys = ("env_steps", "secs", "env_steps_per_sec", "cpu_secs_per_1000_env_steps")
record = {"system": "peer", **dict.fromkeys(keys, 1.0)}
print(json.dumps({**record, "reached": " ".join(sys.argv[1:])}))
"""


def test_rates_are_of_the_running_time_and_shares_of_the_rounds():
    record = rounds.record_of(
        {
            "env_steps": 4000,
            "running_secs": 8.0,
            "stop_reason": "max_seconds=8 reached",
            "cpu_secs": {"actor": {"steady": 3.0}, "ps": {"steady": 1.0}},
            "rounds": {"rounds": 4, "secs": 5.0, "overhead_secs": 0.4},
        }
    )
    assert record["env_steps_per_sec"] == 500.0
    assert record["cpu_secs_per_1000_env_steps"] == 1.0
    assert record["rounds_per_sec"] == 0.5
    assert record["overhead_share"] == pytest.approx(0.08)


def test_without_a_target_nobody_evaluates():
    flags = argparse.Namespace(secs=5.0, target_return=None, gin_binding=["a.b = 1"])
    lines = rounds.bindings(flags)
    assert "a.b = 1" in lines and "StopConditions.max_seconds = 5.0" in lines
    assert any(line.startswith("Rounds.evaluation_period_secs") for line in lines)
    flags.target_return = 475.0
    lines = rounds.bindings(flags)
    assert "StopConditions.target_return = 475.0" in lines
    assert not any(line.startswith("Rounds") for line in lines)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("target", [None, 475.0])
def test_the_configuration_takes_the_bindings(request, target):
    flags = argparse.Namespace(secs=5.0, target_return=target, gin_binding=[])
    config = request.config.rootpath / rounds.DEFAULT_CONFIG
    experiment = configurables.read_experiment(config, rounds.bindings(flags))
    stop = experiment.run.stop
    assert (stop.max_seconds, stop.target_return) == (5.0, target)
    assert stop.max_env_steps is stop.max_learner_steps is None
    assert (experiment.agent.rounds.evaluation_period_secs > 1e6) == (target is None)


@pytest.mark.timeout(60)
def test_a_run_and_its_peer_in_one_table(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(whole_runs, "_LAUNCHER", "fake_launcher")
    monkeypatch.setattr(rounds, "end_on_sigterm", lambda: None)
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parent))
    monkeypatch.setenv("FAKE_LAUNCHER_FLAGS", str(tmp_path / "flags"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{PEER}")
    python.chmod(0o755)
    arguments = ["--secs=2", "--num_actors=1", "--seed=3", "--target_return=9"]
    rounds.main([*arguments, f"--peer_python={python}"])
    ours, peer = json_lines(capfd.readouterr().out)
    assert ours == rounds.record_of(fake_launcher.summary())
    assert peer["reached"] == " ".join(
        ["-m distrl.benchmark.stable_baselines_ppo --secs=2.0 --seed=3"]
        + ["--target_return=9.0"]
    )
    assert list(peer) == list(ours)
    flags = json.loads((tmp_path / "flags").read_text())
    assert (flags["num_actors"], flags["seed"]) == (1, 3)
    assert flags["file"].endswith(rounds.DEFAULT_CONFIG)
    assert "StopConditions.max_seconds = 2.0" in flags["gin_binding"]
    assert {path.name for path in tmp_path.iterdir()} == {"flags", "python"}
