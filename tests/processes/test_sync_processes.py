"""Whole runs of synchronous agents: the real launcher, the real tasks."""

from __future__ import annotations

import json

import pytest
from conftest import ROOT

PPO = ROOT / "configs" / "ppo" / "cartpole.gin"
SMALL = ("StopConditions.target_return = None", "Rounds.evaluation_episodes = 2")


def check_ledger(summary: dict) -> None:
    """Rows trained on are those collected, and none came too late."""
    for name, counts in summary["channels"].items():
        assert counts["sent"] == counts["received"], name
        assert counts["lost"] == counts["duplicates"] == 0, name
    env_steps, rows = summary["env_steps"], summary["rows"]
    assert summary["channels"]["experience"]["sent"] == env_steps > 0
    assert rows["inserted"] == rows["sampled"] == rows["trained"] == env_steps
    assert summary["rounds"]["stale_rows"] == 0


@pytest.mark.timeout(180)
def test_ppo_with_two_memories_and_three_actors(place):
    launcher = place.launch(
        "--num_memories=2",
        "--num_actors=3",
        "--max_env_steps=6000",
        "--no_final_evaluation",
        config=PPO,
        bindings=SMALL,
    )
    assert launcher.wait(150) == 0, place.text("launcher.log")
    summary = place.summary()
    check_ledger(summary)
    assert summary["stop_reason"] == "max_env_steps=6000 reached"
    assert summary["env_steps"] >= 6000 and summary["learner_steps"] > 0
    assert summary["rounds"]["rounds"] >= 2  # of 3 · 4 · 256 rows at most
    assert summary["farewell_secs"] < 15
    exits = {
        (task["job"], task["task"]): task["exit_code"] for task in summary["tasks"]
    }
    assert len(exits) == 1 + 2 + 1 + 3 and set(exits.values()) == {0}
    for index in range(2):  # the last line of each memory
        path = place.run_dir / "metrics" / f"memory-{index}.jsonl"
        totals = json.loads(path.read_text().splitlines()[-1])["totals"]
        assert totals["inserted"] > 0
    assert (place.run_dir / "export" / "saved_model.pb").exists()
    place.check_nothing_left()
