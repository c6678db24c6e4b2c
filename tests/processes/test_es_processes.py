"""A whole run of evolution strategies: the real launcher, the real tasks."""

from __future__ import annotations

import pytest
from conftest import ROOT

SMALL = (
    "StopConditions.target_return = None",
    "Rounds.evaluation_episodes = 2",
    "ESAgent.num_envs = 8",
    "ESSettings.pairs_per_round = 4",
)


@pytest.mark.timeout(180)
def test_es_with_two_memories_and_three_actors(place):
    launcher = place.launch(
        "--num_memories=2",
        "--num_actors=3",
        "--max_env_steps=4000",
        "--no_final_evaluation",
        config=ROOT / "configs" / "es" / "cartpole.gin",
        bindings=SMALL,
    )
    assert launcher.wait(150) == 0, place.text("launcher.log")
    summary = place.summary()
    env_steps, rounds = summary["env_steps"], summary["rounds"]
    assert env_steps >= 4000 and summary["learner_steps"] == rounds["rounds"] > 0
    for name in ("experience", "batches"):
        counts = summary["channels"][name]
        assert counts["sent"] == counts["received"] == env_steps, name
        assert counts["lost"] == counts["duplicates"] == 0, name
    assert summary["rows"]["trained"] == env_steps and rounds["stale_rows"] == 0
    assert summary["episodes"] == 3 * 8 * rounds["rounds"]
    assert {task["exit_code"] for task in summary["tasks"]} == {0}
    assert (place.run_dir / "export" / "saved_model.pb").exists()
    place.check_nothing_left()
