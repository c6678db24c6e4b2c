"""The shipped configurations learn their tasks: real runs, several seeds."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from launch.bootstrap import ROOT

# Configuration (none: the default of ./launch/train), the mean return that 100 greedy
# episodes must reach, seeds, and how many of these must do it.
ASYNCHRONOUS = [
    (None, 475, 5, 5),
    ("apex_ddpg/pendulum.gin", -250, 3, 3),
    ("impala/cartpole.gin", 475, 3, 3),
    ("impala/memory_task.gin", 0.95, 3, 3),
]
SYNCHRONOUS = [
    ("ppo/cartpole.gin", 475, 3, 3),
    ("ppo/pendulum.gin", -250, 3, 3),
    ("ppo/lunarlander.gin", 200, 3, 2),
    ("es/cartpole.gin", 475, 3, 3),
]


def train(
    run_dir, config: str | None, seed: int, *more: str, timeout: float = 1200
) -> dict[str, Any]:
    """The summary of a run that went well."""
    configs = [] if config is None else [ROOT / "configs" / config]
    flags = [f"--run_dir={run_dir}", f"--seed={seed}", *more]
    launcher = subprocess.run(
        [sys.executable, "-m", "launch.local", *configs, *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert launcher.returncode == 0, launcher.stdout + launcher.stderr
    summary = json.loads((run_dir / "summary.json").read_text())
    if "--no_final_evaluation" not in more:
        assert summary["final_evaluation"]["episodes"] == 100
    for name, counts in summary["channels"].items():
        assert counts["lost"] == 0, name
        assert counts["sent"] == counts["received"], name
    assert {task["exit_code"] for task in summary["tasks"]} == {0}
    assert summary["farewell_secs"] <= 10
    return summary


def check_learns(tmp_path, config, threshold, seeds, needed) -> list[dict[str, Any]]:
    summaries = [train(tmp_path / str(s), config, s) for s in range(seeds)]
    reached = [summary["final_evaluation"]["mean_return"] for summary in summaries]
    assert sum(mean >= threshold for mean in reached) >= needed, reached
    return summaries


@pytest.mark.slow
@pytest.mark.timeout(3700)
@pytest.mark.parametrize("config, threshold, seeds, needed", ASYNCHRONOUS)
def test_asynchronous_agents_learn(tmp_path, config, threshold, seeds, needed):
    check_learns(tmp_path, config, threshold, seeds, needed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_memory_task_needs_a_memory(tmp_path):
    flags = ["--gin_binding=ImpalaModel.core = None", "--max_env_steps=500000"]
    summary = train(tmp_path / "run", "impala/memory_task.gin", 0, *flags)
    assert summary["final_evaluation"]["mean_return"] <= 0.6


@pytest.mark.slow
@pytest.mark.timeout(3900)
def test_impala_learns_pong(tmp_path):
    """The last 100 games of two million env steps, as they were played in training."""
    no_goal = "--gin_binding=StopConditions.target_return=None"
    flags = ["--max_env_steps=2000000", no_goal, "--no_final_evaluation"]
    train(tmp_path / "run", "impala/pong.gin", 0, *flags, timeout=3800)
    lines = (tmp_path / "run" / "metrics" / "ps-0.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["mean_return"] >= 0


@pytest.mark.slow
@pytest.mark.timeout(3700)
@pytest.mark.parametrize("config, threshold, seeds, needed", SYNCHRONOUS)
def test_synchronous_agents_learn(tmp_path, config, threshold, seeds, needed):
    """They also train on exactly what was collected, no row of a stale round."""
    for summary in check_learns(tmp_path, config, threshold, seeds, needed):
        assert summary["rows"]["trained"] == summary["env_steps"]
        assert summary["channels"]["experience"]["sent"] == summary["env_steps"]
        assert summary["rounds"]["stale_rows"] == 0
