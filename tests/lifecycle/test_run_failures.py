"""What a run survives: the run state under each policy, and a clock that is turned."""

import logging

import pytest
from run_under_test import TASKS, Run, running

from distrl.cluster.spec import ClusterSpec
from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.lifecycle.published_view import published_view
from distrl.lifecycle.run_state import (
    DONE,
    FAILED,
    JOINED,
    LOST,
    REFUSED,
    RUNNING,
    STOPPING,
)

TWO = ClusterSpec(("ps:1",), ("memory:1", "memory:2"), ("learner:1",), 2)
SERVERS = ("ps/0", "memory/0", "learner/0")


def fail(run, name, incarnation=1, message="ValueError: no", **fields):
    run.beat(name, incarnation, state=FAILED, message=message, **fields)


def lose(run, *names, others):
    """These fall silent while the others live on."""
    run.live(16.0, others)
    assert all(run.member(name).state == LOST for name in names)


@pytest.mark.parametrize("policy", ["ignore", "restart(3)"])
@pytest.mark.parametrize("how", ["failed", "lost"])
def test_a_failed_actor_does_not_stop_the_run(policy, how, caplog):
    run = running(policies=FailurePolicies(actor=policy))
    others = (*SERVERS, "actor/1")
    run.all_beat(others)
    with caplog.at_level(logging.WARNING):
        if how == "failed":
            fail(run, "actor/0", totals={"env_steps": 5.0})
        else:
            run.beat("actor/0", totals={"env_steps": 5.0})
            lose(run, "actor/0", others=others)
    run.live(100.0, others)
    assert run.state.phase == RUNNING
    assert run.state.books.totals()["env_steps"] == 5.0
    assert published_view(run.state, run.now)["failures"] == {"actor": 1}
    cause = (
        "actor/0: ValueError: no" if how == "failed" else "actor/0 is lost: no beats"
    )
    assert cause in caplog.text and policy in caplog.text


def test_a_failed_actor_that_comes_back_is_a_member_again():
    run = running()
    fail(run, "actor/0", 1, totals={"env_steps": 5.0})
    run.beat("actor/0", 2, totals={"env_steps": 1.0})
    run.beat("actor/0", 1, number=10**6, totals={"env_steps": 99.0})  # on its way
    run.live(10.0, SERVERS)
    assert run.member("actor/0").incarnation == 2
    assert run.state.books.totals()["env_steps"] == 6.0
    assert run.state.failures.by_job == {"actor": 1}


def test_a_lost_actor_that_beats_again_stays_out_until_it_comes_as_another():
    run = running()
    run.beat("actor/1")
    lose(run, "actor/0", others=(*SERVERS, "actor/1"))
    run.beat("actor/0", 1, totals={"env_steps": 9.0})
    run.tick()
    assert run.member("actor/0").state == LOST
    assert "env_steps" not in run.state.books.totals()
    assert run.state.lost() == {"actor/0": 1}
    run.beat("actor/0", 2)
    run.tick()
    assert run.member("actor/0").state == JOINED and run.state.lost() == {}
    assert run.state.failures.by_job == {"actor": 1}


def test_an_actor_that_is_replaced_before_it_is_missed_has_failed():
    run = running()
    run.beat("actor/0", 2)
    assert run.state.failures.by_job == {"actor": 1}
    assert run.state.phase == RUNNING and run.member("actor/0").incarnation == 2
    fail(run, "actor/0", 1, number=10**6)  # the old one is not heard any more
    assert run.member("actor/0").state == JOINED


@pytest.mark.parametrize("how", ["failed", "lost", "replaced"])
def test_the_books_of_who_fails_are_closed(how):
    run = running()
    run.beat("actor/1")
    run.beat("actor/0", totals={"sent/experience": 100.0})
    seen = {"experience": {"actor/0/1": 90, "actor/1/1": 7}}
    totals = {"received/experience": 90.0}
    run.beat("memory/0", totals=totals, seen=seen)
    assert "lost/experience" not in published_view(run.state, run.now)["totals"]
    others = (*SERVERS[::2], "actor/1")
    if how == "failed":
        fail(run, "actor/0", totals={"sent/experience": 100.0})
    elif how == "replaced":
        run.beat("actor/0", 2)
    else:
        for _ in range(16):
            run.beat("memory/0", totals=totals, seen=seen)
            run.live(1.0, others)
    assert run.state.failures.by_job == {"actor": 1}
    assert published_view(run.state, run.now)["totals"]["lost/experience"] == 10.0


def test_an_actor_that_left_and_comes_again_has_not_failed():
    run = running()
    run.beat("actor/0", state=DONE)
    run.beat("actor/0", 2)
    assert run.state.failures.by_job == {} and run.state.phase == RUNNING


def test_under_fail_a_replacement_ends_the_run():
    run = running(policies=FailurePolicies(actor="fail"))
    run.beat("actor/0", 2)
    reason = "failure: actor/0 was replaced by a newer one"
    assert run.state.stop_reason == reason
    run.beat("actor/0", 2, state=DONE)
    assert run.member("actor/0").state == DONE


def test_too_many_failures_within_an_hour_end_the_run():
    run = running(policies=FailurePolicies(actor="restart(2)"))
    fail(run, "actor/0")
    run.beat("actor/1")
    fail(run, "actor/1")
    run.beat("actor/0", 9)
    run.live(10.0, SERVERS)
    assert run.state.phase == RUNNING
    fail(run, "actor/0", 9, "OSError: the third")
    assert run.state.stop_reason == (
        "failure: 3 failures of job actor within an hour, where 2 are allowed; "
        "the last: actor/0: OSError: the third"
    )


def test_old_failures_are_forgotten():
    run = running(policies=FailurePolicies(actor="restart(1)"))
    fail(run, "actor/0")
    for incarnation in range(2, 6):
        run.beat("actor/0", incarnation)
        run.now += 3601.0
        run.all_beat(SERVERS)
        run.beat("actor/0", incarnation)
        run.tick()
        fail(run, "actor/0", incarnation)
        assert run.state.phase == RUNNING
    run.beat("actor/0", 9)
    fail(run, "actor/0", 9)
    assert run.state.stop_reason.startswith("failure: 2 failures of job actor")


def test_under_fail_a_failure_ends_the_run():
    run = running(policies=FailurePolicies(memory="fail"))
    fail(run, "memory/0")
    assert run.state.stop_reason == "failure: memory/0: ValueError: no"


@pytest.mark.parametrize("job", ["memory", "learner"])
def test_what_would_fail_again_ends_the_run(job):
    run = running()
    fail(run, f"{job}/0", fatal=True)
    assert run.state.stop_reason == f"failure: {job}/0: ValueError: no"
    run = Run()
    fail(run, f"{job}/0")  # before the run has begun
    assert run.state.stop_reason == f"failure: {job}/0: ValueError: no"


# Tasks that the run needs.


def test_a_memory_that_comes_back_in_time_lets_the_run_go_on():
    run = running(policies=FailurePolicies(memory="restart(2)"))
    fail(run, "memory/0")
    run.live(59.0, ("ps/0", "learner/0", "actor/0"))
    run.beat("memory/0", 2)
    run.all_beat()
    for _ in range(100):
        run.all_beat(("ps/0", "learner/0", "actor/0"))
        run.beat("memory/0", 2)
        run.tick(1.0)
    assert run.state.phase == RUNNING


def test_a_memory_that_stays_away_ends_the_run_by_name():
    run = running(policies=FailurePolicies(memory="restart(2)"))
    others = ("ps/0", "learner/0", "actor/0")
    lose(run, "memory/0", others=others)
    run.live(60.0, others)
    assert run.state.phase == RUNNING
    run.live(1.0, others)
    assert run.state.stop_reason == (
        "failure: memory/0 has not come back for 60 s: "
        "memory/0 is lost: no beats for 16 s"
    )


def test_a_memory_is_left_out_while_there_is_another():
    run = running(
        cluster=TWO, policies=FailurePolicies(memory="ignore"), also="memory/1"
    )
    fail(run, "memory/1")
    run.live(100.0)
    assert run.state.phase == RUNNING
    fail(run, "memory/0")
    assert run.state.stop_reason == (
        "failure: no memory is left: memory/0: ValueError: no"
    )


def test_a_memory_that_was_replaced_is_not_missing():
    run = running(policies=FailurePolicies(memory="ignore"))
    run.beat("memory/0", 2)
    assert run.state.phase == RUNNING and run.state.failures.by_job == {"memory": 1}


def test_without_actors_the_last_failure_is_named():
    run = running()
    fail(run, "actor/0")
    run.live(61.0, SERVERS)
    reason = run.state.stop_reason
    assert reason.startswith("failure: no actor has been left for a while")
    assert reason.endswith("the last failure: actor/0: ValueError: no")


# The farewell.


@pytest.mark.parametrize("policy", ["fail", "ignore", "restart(1)"])
def test_failures_in_the_farewell_are_counted_and_change_nothing(policy):
    run = running(policies=FailurePolicies(actor=policy, memory=policy))
    run.state.stop("enough", run.now)
    fail(run, "actor/0")
    fail(run, "memory/0")
    run.beat("actor/0", 2)
    assert run.member("actor/0").state == REFUSED  # it is told that the run is ending
    run.beat("learner/0", state=DONE)
    run.tick()
    assert run.state.may_leave and run.state.stop_reason == "enough"
    assert run.state.failures.by_job == {"actor": 1, "memory": 1}


def test_who_is_awaited_is_not_awaited_in_the_farewell():
    run = running(policies=FailurePolicies(memory="restart(2)"))
    fail(run, "memory/0")
    run.state.stop("enough", run.now)
    run.beat("actor/0", state=DONE)
    run.beat("learner/0", state=DONE)
    run.live(2.0, ("ps/0",))
    assert run.state.may_leave and run.state.phase != STOPPING
    assert run.state.stop_reason == "enough"


def test_all_tasks_of_the_run_are_in_the_test():
    assert TASKS == (*SERVERS, "actor/0")
