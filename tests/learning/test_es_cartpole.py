"""Evolution strategies learn CartPole, three seeds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from launch.bootstrap import ROOT


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_es_solves_cartpole(tmp_path, seed):
    run_dir = tmp_path / "run"
    launcher = subprocess.run(
        [
            sys.executable,
            ROOT / "launch" / "local.py",
            ROOT / "configs" / "es" / "cartpole.gin",
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
    assert summary["final_evaluation"]["mean_return"] >= 475
    for name in ("experience", "batches"):
        counts = summary["channels"][name]
        assert counts["sent"] == counts["received"] == summary["env_steps"], name
    assert summary["rows"]["trained"] == summary["env_steps"]
    assert summary["rounds"]["stale_rows"] == 0
    assert {task["exit_code"] for task in summary["tasks"]} == {0}
    assert summary["farewell_secs"] <= 10
