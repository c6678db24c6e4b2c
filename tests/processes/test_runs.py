"""Whole runs: the real launcher, the real tasks."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
from conftest import SMALL, ByHand

from distrl.checkpoints.checkpoint_store import CheckpointStore


def check_ledger(summary: dict) -> None:
    for name, counts in summary["channels"].items():
        assert counts["sent"] == counts["received"] + counts["lost"], name
        assert counts["lost"] == counts["duplicates"] == 0, name
    assert summary["channels"]["experience"]["sent"] == summary["env_steps"] > 0
    assert summary["rows"]["inserted"] == summary["env_steps"]
    assert summary["channels"]["batches"]["sent"] == summary["rows"]["sampled"]
    assert summary["channels"]["priorities"]["sent"] == summary["rows"]["trained"] > 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "num_ps, num_memories, num_actors", [(1, 1, 1), (1, 1, 3), (2, 2, 4)]
)
def test_topologies_end_in_order(place, num_ps, num_memories, num_actors):
    launcher = place.launch(
        f"--num_ps={num_ps}",
        f"--num_memories={num_memories}",
        f"--num_actors={num_actors}",
        "--max_env_steps=8000",
        "--no_final_evaluation",
    )
    assert launcher.wait(150) == 0, place.text("launcher.log")
    summary = place.summary()
    check_ledger(summary)
    assert summary["stop_reason"] == "max_env_steps=8000 reached"
    assert summary["env_steps"] >= 8000
    assert summary["learner_steps"] > 0
    assert summary["farewell_secs"] < 10
    tasks = {
        (task["job"], task["task"]): task["exit_code"] for task in summary["tasks"]
    }
    assert len(tasks) == num_ps + num_memories + 1 + num_actors
    assert set(tasks.values()) == {0}
    place.check_nothing_left()


@pytest.mark.timeout(180)
def test_run_leaves_what_it_promises(place):
    launcher = place.launch("--num_actors=1", "--max_learner_steps=310", "--seed=3")
    assert launcher.wait(150) == 0, place.text("launcher.log")
    summary = place.summary()
    check_ledger(summary)
    assert summary["learner_steps"] == 310
    assert summary["samples_per_insert"] > 0
    assert summary["cpu_secs"]["learner"]["start_up"] > 0
    assert summary["cpu_secs"]["learner"]["steady"] > 0
    evaluation = summary["final_evaluation"]
    assert evaluation["episodes"] == 100
    assert 8 <= evaluation["mean_return"] <= 500
    run_dir = place.run_dir
    for job in ("ps-0", "memory-0", "learner-0", "actor-0"):
        assert (run_dir / "logs" / f"{job}.log").exists()
        lines = (run_dir / "metrics" / f"{job}.jsonl").read_text().splitlines()
        assert all("time" in json.loads(line) for line in lines) and lines
    assert list((run_dir / "tensorboard").glob("events.*"))
    assert (run_dir / "export" / "saved_model.pb").exists()
    assert "Acting.n_step = 3" in (run_dir / "config.gin").read_text()
    assert "Run.seed = 3" in (run_dir / "config.gin").read_text()
    store = CheckpointStore(run_dir / "checkpoints")
    arrays, counters = store.load(store.newest())
    assert counters["learner_steps"] == 310
    online = {n: a for n, a in arrays.items() if n.startswith("online/")}
    target = [arrays[name.replace("online/", "target/", 1)] for name in online]
    assert any(
        not np.array_equal(a, b) for a, b in zip(online.values(), target, strict=True)
    )
    place.check_nothing_left()
    again = place.launch()
    assert again.wait(30) != 0
    assert str(run_dir) in place.text("launcher.log").splitlines()[-1]


@pytest.mark.timeout(180)
def test_by_hand_in_any_order_joining_and_leaving(place):
    run = ByHand(place)
    started = {("actor", i): run.start("actor", i) for i in (1, 0)}
    for job in ("learner", "memory", "ps"):
        started[job, 0] = run.start(job)
    place.wait_until(lambda: place.status().get("learner_steps", 0) > 0, "training")
    late = run.start("actor", 7)
    place.wait_until(
        lambda: "epsilons" in place.text("actor-7.log"), "actor 7 acts in mid-run"
    )
    # An actor leaves alone …
    started["actor", 1].send_signal(signal.SIGTERM)
    assert started.pop(("actor", 1)).wait(30) == 0, place.text("actor-1.log")
    before = place.status()["env_steps"]
    place.wait_until(
        lambda: place.status()["env_steps"] > before + 1000, "the others go on"
    )
    # … any other task ends the run in order.
    started["learner", 0].send_signal(signal.SIGTERM)
    for (job, index), process in (started | {("actor", 7): late}).items():
        assert process.wait(40) == 0, place.text(f"{job}-{index}.log")
    summary = place.summary()
    check_ledger(summary)
    assert summary["stop_reason"] == "SIGTERM at learner/0"
    # Who comes now is told so.
    assert run.start("actor", 3).wait(30) == 0
    assert "already ended" in place.text("actor-3.log")
    place.check_nothing_left()


@pytest.mark.timeout(120)
def test_config_that_differs_is_refused_with_both_values(place):
    run = ByHand(place, bindings=(*SMALL, "Acting.discount = 0.75"))
    started = [run.start(job) for job in ("ps", "memory", "learner")]
    odd = run.start("actor", 0, "--gin_binding=Acting.discount = 0.5")
    assert odd.wait(60) not in (0, None)
    text = place.text("actor-0.log")
    assert "Acting.discount" in text and "0.5" in text and "0.75" in text
    started[0].send_signal(signal.SIGINT)
    for process in started:
        assert process.wait(40) == 0
    place.check_nothing_left()
