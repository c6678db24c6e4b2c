"""Whole runs of IMPALA: the real launcher, the real tasks."""

from __future__ import annotations

import json

import pytest
from conftest import ROOT

CUE = ROOT / "configs" / "impala" / "memory_task.gin"
NUM_ACTORS, NUM_ENVS, LENGTH, BATCH = 3, 4, 10, 8
SMALL = (
    "StopConditions.target_return = None",
    "Unrolls.evaluation_episodes = 2",
    f"Unrolls.unroll_length = {LENGTH}",
    f"ImpalaAgent.num_envs = {NUM_ENVS}",
    f"UnrollBatches.batch_size = {BATCH}",
    "RecurrentCore.size = 8",
    "CueTask.delay = 3",  # episodes of 5 steps, so every 6th row is no step
)
NO_CORE = ("ImpalaModel.core = None",)
AT_LEARNER = ("Inference.at = 'learner'",)


def check_ledger(summary: dict) -> None:
    """Rows are unrolls: all have arrived, and all were handed to the learner."""
    for name, counts in summary["channels"].items():
        assert counts["sent"] == counts["received"], name
        assert counts["lost"] == counts["duplicates"] == 0, name
    rows, channels = summary["rows"], summary["channels"]
    unrolls = channels["experience"]["sent"]
    assert unrolls == rows["inserted"] == rows["sampled"] == channels["batches"]["sent"]
    # No stream ships more than one step above 5 of 6 rows.
    shipped = summary["env_steps"] - summary["unfinished_steps"]
    assert 0 <= shipped - unrolls * LENGTH * 5 / 6 < NUM_ACTORS * NUM_ENVS
    # All batches have one size, but for what is left in each of two memories.
    trained, steps = rows["trained"], summary["learner_steps"]
    assert 0 < trained <= rows["sampled"]
    assert 0 <= BATCH * steps - trained <= 2 * (BATCH - 1)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "bindings", [NO_CORE, (), AT_LEARNER], ids=["plain", "lstm", "at_learner"]
)
def test_impala_with_two_memories_and_three_actors(place, bindings):
    launcher = place.launch(
        "--num_memories=2",
        f"--num_actors={NUM_ACTORS}",
        "--max_env_steps=4000",
        "--no_final_evaluation",
        config=CUE,
        bindings=(*SMALL, *bindings),
    )
    assert launcher.wait(150) == 0, place.text("launcher.log")
    summary = place.summary()
    check_ledger(summary)
    assert summary["stop_reason"] == "max_env_steps=4000 reached"
    assert summary["env_steps"] >= 4000 and summary["farewell_secs"] < 15
    exits = {
        (task["job"], task["task"]): task["exit_code"] for task in summary["tasks"]
    }
    assert len(exits) == 1 + 2 + 1 + NUM_ACTORS and set(exits.values()) == {0}
    for index in range(2):  # the last line of each memory
        path = place.run_dir / "metrics" / f"memory-{index}.jsonl"
        totals = json.loads(path.read_text().splitlines()[-1])["totals"]
        assert totals["inserted"] > 0
    asked = summary["channels"]["observations"]["sent"]
    assert asked == summary["channels"]["actions"]["sent"]
    if bindings == AT_LEARNER:  # about the rows that are no steps, too
        assert asked >= summary["env_steps"] * 6 / 5 - NUM_ACTORS * NUM_ENVS
    else:
        assert asked == 0
    assert (place.run_dir / "export" / "saved_model.pb").exists()
    place.check_nothing_left()
