"""Whole runs on a disk that takes no more: nothing but what it should keep is lost."""

import contextlib
import json
import os
import resource
import threading

import pytest
from local_run import check_ledger, make_agent

from distrl.agents import learner_checkpoints
from distrl.agents.settings import Learning
from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.metrics import appended_file

pytestmark = pytest.mark.timeout(90)


@contextlib.contextmanager
def full_disk():
    """Every write to a file fails, also those of TensorFlow: no file may grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def saving_agent():
    agent = make_agent()
    agent.learning = Learning(publish_period=5, checkpoint_period_secs=0.3)
    return agent


def numbers(run, folder):
    path = run.run_dir / folder
    return (
        {p.name for p in path.iterdir() if p.name.isdigit()} if path.exists() else set()
    )


def lines(run, name):
    text = (run.run_dir / "metrics" / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_goes_on_through_a_full_disk_and_saves_again_behind_it(
    make_run, caplog, monkeypatch
):
    monkeypatch.setattr(learner_checkpoints, "_PATIENCE_SECS", 1.0)
    run = make_run()
    run.start(saving_agent())
    run.wait_until(lambda: numbers(run, "checkpoints") and numbers(run, "memory-0"))

    def said(words):
        return [r for r in caplog.records if words in r.getMessage()]

    with full_disk():
        run.wait_until(lambda: said("no checkpoint at step"))
        before = numbers(run, "checkpoints"), numbers(run, "memory-0")
        steps = run.tasks["learner/0"].counters.get("learner_steps")
        run.wait_until(lambda: len(said("no checkpoint at step")) > 2)
        run.wait_until(lambda: len(said("jsonl: ")) == 5)
        assert numbers(run, "checkpoints") == before[0]
    assert run.tasks["learner/0"].counters.get("learner_steps") > steps
    for record in said("no checkpoint at step"):
        assert f"{run.run_dir}/checkpoints" in record.getMessage()
    run.wait_until(lambda: numbers(run, "checkpoints") - before[0])
    run.wait_until(lambda: numbers(run, "memory-0") - before[1])
    run.tasks["ps/0"].signals.received = "SIGTERM"
    check_ledger(run.join_well())
    assert len(said("jsonl: ")) == 5  # once for each task
    assert lines(run, "ps-0")[-1]["phase"] == "finished"
    for name in ("actor-0", "actor-1", "memory-0", "learner-0"):
        assert lines(run, name)[-1]["totals"]
    assert (run.run_dir / "export").is_dir()


def test_a_disk_that_is_full_to_the_end_loses_the_summary_by_name(make_run, caplog):
    policies = FailurePolicies(learner="fail")
    run = make_run(max_learner_steps=40, policies=policies)
    run.start(saving_agent())
    run.wait_until(lambda: run.running("learner/0"))
    with full_disk():
        errors = run.join()
    assert isinstance(errors["learner/0"], OSError)
    for words in ("no checkpoint at step 40", "no export", "records are lost"):
        assert words in caplog.text
    assert not (run.run_dir / "summary.json").exists()


def test_a_disk_that_hangs_makes_nobody_lost(make_run, monkeypatch):
    write, answers = os.write, threading.Event()
    answers.set()

    def hang(file, data):
        answers.wait(60.0)
        return write(file, data)

    monkeypatch.setattr(appended_file.os, "write", hang)
    run = make_run()
    run.start(make_agent())
    run.wait_until(run.running)

    def beats():
        return {k: entry[1] for k, entry in run.tasks["actor/0"].view.members.items()}

    try:
        answers.clear()
        before = beats()
        run.wait_until(lambda: all(beats()[k] > n + 10 for k, n in before.items()))
    finally:
        answers.set()
    assert len(before) == 5
    run.tasks["ps/0"].signals.received = "SIGTERM"
    check_ledger(run.join_well())
    assert lines(run, "ps-0")[-1]["phase"] == "finished"
