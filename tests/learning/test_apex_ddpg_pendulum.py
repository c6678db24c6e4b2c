"""Ape-X with DDPG learns to swing a pendulum up, three seeds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from launch.bootstrap import ROOT


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_apex_ddpg_solves_pendulum(tmp_path, seed):
    run_dir = tmp_path / "run"
    launcher = subprocess.run(
        [
            sys.executable,
            ROOT / "launch" / "local.py",
            ROOT / "configs" / "apex_ddpg" / "pendulum.gin",
            f"--run_dir={run_dir}",
            f"--seed={seed}",
        ],
        capture_output=True,
        text=True,
        timeout=590,
    )
    assert launcher.returncode == 0, launcher.stdout + launcher.stderr
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["final_evaluation"]["episodes"] == 100
    assert summary["final_evaluation"]["mean_return"] >= -250
    for name, counts in summary["channels"].items():
        assert counts["lost"] == 0, name
        assert counts["sent"] == counts["received"], name
    assert {task["exit_code"] for task in summary["tasks"]} == {0}
    assert summary["farewell_secs"] <= 10
