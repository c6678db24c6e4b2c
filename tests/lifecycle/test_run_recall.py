"""What another ps 0 takes over from the one before it."""

import json

import pytest
from run_under_test import Run, running

from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.lifecycle.published_view import published_view
from distrl.lifecycle.run_recall import dump
from distrl.lifecycle.run_state import (
    DONE,
    FINISHED,
    JOINED,
    LOST,
    RUNNING,
    STARTING,
    STOPPING,
)

SERVERS = ("ps/0", "memory/0", "learner/0")


def told(run):
    """As it travels."""
    return json.loads(json.dumps(dump(run.state, run.now)))


def another_ps(before, resumes=False, learner=1, **arguments):
    """Another ps 0, which learner 0 has told what the one before knew."""
    run = Run(**arguments)
    run.numbers = before.numbers  # tasks go on counting
    run.beat("ps/0", 2, run_id="")
    run.beat("learner/0", learner, recall=told(before), resumes=resumes)
    return run


def test_a_blank_ps_goes_on_where_the_last_one_was():
    before = running(max_seconds=100.0)
    before.live(90.0)
    before.beat("actor/0", state=DONE, totals={"env_steps": 80.0})
    run = another_ps(before, max_seconds=100.0)
    assert (run.state.run_id, run.state.phase) == ("a1", RUNNING)
    assert run.member("actor/0").state == DONE
    assert run.member("memory/0").state == JOINED
    assert run.member("ps/0").incarnation == 2
    assert run.state.books.totals()["env_steps"] == 80
    assert run.state.failures.by_job == {"ps": 1}
    assert run.state.running_secs(run.now) == pytest.approx(90.0, abs=1.1)
    run.live(8.0, ("memory/0", "learner/0"))
    assert run.state.phase == RUNNING
    run.live(3.0, ("memory/0", "learner/0"))
    assert run.state.stop_reason == "max_seconds=100.0 reached"


def test_members_have_time_to_find_the_new_ps_and_are_lost_if_they_do_not():
    run = another_ps(running())
    run.live(14.0, ("learner/0", "actor/0"))
    assert run.member("memory/0").state == JOINED
    run.live(3.0, ("learner/0", "actor/0"))
    assert run.member("memory/0").state == LOST


def test_who_was_started_again_meanwhile_has_failed():
    before = running()
    run = Run()
    run.beat("ps/0", 2, run_id="")
    run.beat("actor/0", 2, run_id="")
    run.beat("learner/0", recall=told(before))
    assert run.member("actor/0").incarnation == 2
    assert run.state.failures.by_job == {"ps": 1, "actor": 1}


def test_a_run_that_was_stopping_stops():
    before = running(max_env_steps=10)
    before.beat("actor/0", totals={"env_steps": 10.0})
    before.tick()
    run = another_ps(before)
    assert run.state.phase == STOPPING
    assert run.state.stop_reason == "max_env_steps=10 reached"
    run.all_beat(("memory/0", "learner/0", "actor/0"), state=DONE)
    run.tick()
    assert run.state.phase == FINISHED


def test_only_a_blank_ps_listens():
    before = running()
    before.beat("actor/0", totals={"env_steps": 5.0})
    run = running()
    run.beat("learner/0", 2, recall=told(before))
    assert "env_steps" not in run.state.books.totals()


def test_failures_are_not_forgotten():
    before = running(policies=FailurePolicies(actor="restart(1)"))
    before.beat("actor/0", 2)
    run = another_ps(before, policies=FailurePolicies(actor="restart(1)"))
    run.beat("actor/0", 3)
    assert run.state.stop_reason.startswith("failure: 2 failures of job actor")


def test_a_run_that_is_resumed_begins_anew_with_its_books():
    before = running(max_seconds=100.0)
    before.live(20.0)
    before.beat("actor/0", totals={"sent/e": 9.0, "env_steps": 9.0})
    before.beat("memory/0", totals={"received/e": 7.0}, seen={"e": {"actor/0/1": 7}})
    run = another_ps(before, resumes=True, learner=5, max_seconds=100.0)
    assert run.state.phase == STARTING and set(run.state.members) == {
        "ps/0",
        "learner/0",
    }
    totals = run.state.books.totals()
    assert totals["sent/e"] == 9 and totals["received/e"] + totals["lost/e"] == 9
    run.beat("memory/0", 5, run_id="")
    run.beat("actor/0", 5, totals={"env_steps": 2.0})
    run.tick()
    assert run.state.phase == RUNNING and run.state.failures.by_job == {}
    assert run.state.books.totals()["env_steps"] == 11
    assert run.state.running_secs(run.now) == pytest.approx(20.0, abs=1.1)


def test_checkpoints_are_numbered_until_the_run_stops():
    run = running()
    run.beat("learner/0", checkpoint=3)
    assert published_view(run.state, run.now)["checkpoint"] == 3
    run.state.stop("enough", run.now)
    run.beat("learner/0", checkpoint=4)  # it does not know yet
    assert published_view(run.state, run.now)["checkpoint"] == 3
    assert another_ps(run).state.checkpoint == 3


def test_a_run_that_stops_waits_for_the_learner_that_sums_it_up():
    run = running(max_env_steps=10)
    run.beat("actor/0", totals={"env_steps": 10.0})
    run.tick()
    run.all_beat(("memory/0", "actor/0"), state=DONE, totals={"env_steps": 10.0})
    run.live(17.0, ("ps/0",))
    assert run.member("learner/0").state == LOST and run.state.phase == STOPPING
    run.beat("learner/0", 2)
    assert run.member("learner/0").state == JOINED
    run.beat("learner/0", 2, state=DONE)
    run.tick()
    assert run.state.phase == FINISHED


def test_it_does_not_wait_for_ever():
    run = running(max_env_steps=10)
    run.beat("actor/0", totals={"env_steps": 10.0})
    run.tick()
    run.all_beat(("memory/0", "actor/0"), state=DONE)
    run.live(80.0, ("ps/0",))
    assert run.state.phase == FINISHED


def test_a_stop_is_shown_once_learner_0_keeps_it():
    """Else another ps 0 would not know of it, and miss who has left already."""
    run = running(max_env_steps=10)
    run.beat("actor/0", totals={"env_steps": 10.0})
    run.tick()
    seen = published_view(run.state, run.now)
    assert (seen["phase"], seen["stop_reason"]) == (RUNNING, "")
    assert seen["stop_is_due"] and seen["near_end"] and seen["stop_time"] is None
    assert told(run)["phase"] == STOPPING
    run.beat("learner/0", kept=RUNNING)
    assert published_view(run.state, run.now)["phase"] == RUNNING
    run.beat("learner/0", kept=STOPPING)
    seen = published_view(run.state, run.now)
    assert seen["phase"] == STOPPING and not seen["stop_is_due"]
    again = another_ps(run)
    assert published_view(again.state, again.now)["phase"] == STOPPING


@pytest.mark.parametrize("state", [LOST, DONE])
def test_a_stop_does_not_wait_for_a_learner_that_is_gone(state):
    run = running()
    run.state.stop("enough", run.now)
    run.member("learner/0").state = state
    assert published_view(run.state, run.now)["phase"] == STOPPING


def test_a_stop_is_shown_at_once_where_no_other_ps_can_come():
    run = running(policies=FailurePolicies(ps="fail"))
    run.state.stop("enough", run.now)
    assert published_view(run.state, run.now)["phase"] == STOPPING
