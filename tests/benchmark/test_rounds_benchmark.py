"""What the benchmark of rounds makes of a summary, and a short run."""

import argparse

import pytest

from distrl.benchmark import rounds
from distrl.benchmark.measuring import json_lines, output_of


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
def test_a_short_run(request, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    config = request.config.rootpath / "configs/ppo/cartpole.gin"
    text = output_of(
        ["distrl.benchmark.rounds", f"--config={config}", "--secs=2", "--num_actors=1"]
    )
    (record,) = json_lines(text)
    assert record["env_steps"] > 0 and record["rounds_per_sec"] > 0
    assert 0 <= record["overhead_share"] < 1
    assert list(tmp_path.iterdir()) == []
