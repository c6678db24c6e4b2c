"""Policies as texts, and the count of failures within an hour."""

import pytest

from distrl.core.errors import ConfigError
from distrl.lifecycle.failure_policy import (
    FAIL,
    IGNORE,
    RESTART,
    FailureCounts,
    FailurePolicies,
    Policy,
    parse_policy,
)


def test_every_job_is_started_again_by_default():
    policies = FailurePolicies()
    assert policies.of("actor") == Policy(RESTART, 20)
    others = {policies.of(job) for job in ("memory", "learner", "ps")}
    assert others == {Policy(RESTART, 5)}


@pytest.mark.parametrize(
    "text, policy",
    [
        ("fail", Policy(FAIL)),
        ("ignore", Policy(IGNORE)),
        ("restart(1)", Policy(RESTART, 1)),
        ("restart(1000)", Policy(RESTART, 1000)),
    ],
)
def test_texts(text, policy):
    assert parse_policy(text, "x") == policy


@pytest.mark.parametrize(
    "text",
    ["", "Fail", "restart", "restart()", "restart(0)", "restart(-1)", "restart(1.5)"]
    + ["restart(2) ", "ignore(2)", "restart(1)\n", None, 3],
)
def test_bad_texts_are_refused_with_what_is_expected(text):
    with pytest.raises(ConfigError) as refusal:
        FailurePolicies(memory=text)
    message = str(refusal.value)
    assert message.startswith("FailurePolicies.memory: expected fail, ignore or rest")
    assert message.endswith(f"got {text!r}")


def test_no_ps_can_be_ignored():
    with pytest.raises(ConfigError, match="FailurePolicies.ps: .*'ignore'"):
        FailurePolicies(ps="ignore")


def test_an_hour_slides_and_jobs_are_counted_apart():
    counts, policy = FailureCounts(), Policy(RESTART, 2)
    assert counts.add("actor", policy, 0.0) == RESTART
    assert counts.add("memory", policy, 1.0) == RESTART
    assert counts.add("actor", policy, 1800.0) == RESTART
    assert counts.recent("actor", 3599.0) == 2
    assert counts.add("actor", policy, 3600.0) == RESTART  # the first is an hour old
    assert counts.add("actor", policy, 5399.0) == FAIL
    assert counts.recent("actor", 5400.0) == 2
    assert counts.by_job == {"actor": 4, "memory": 1}


def test_whoever_may_fail_may_do_so_any_number_of_times():
    counts = FailureCounts()
    actions = {counts.add("actor", Policy(IGNORE), float(n)) for n in range(100)}
    assert actions == {IGNORE} and counts.by_job["actor"] == 100
    assert counts.add("actor", Policy(FAIL), 5000.0) == FAIL
