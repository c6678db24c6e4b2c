"""The run state as a plain object, under a clock that the test turns."""

import itertools
import json
import logging

import pytest
from run_under_test import TASKS, Run, running

from distrl.cluster.spec import ClusterSpec
from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.lifecycle.published_view import published_view
from distrl.lifecycle.run_state import (
    DONE,
    ENDING,
    FAILED,
    FINISHED,
    JOINED,
    LOST,
    REFUSED,
    RUNNING,
    STARTING,
    STOPPING,
)

STRICT = FailurePolicies(actor="fail")


# Start-up.


@pytest.mark.parametrize("order", list(itertools.permutations(TASKS)))
def test_any_order_of_joining_starts_the_run_with_the_last_one(order):
    run = Run()
    for name in order:
        assert run.state.phase == STARTING
        run.beat(name)
        run.tick(1.0)
    assert run.state.phase == RUNNING and run.state.run_id == "a1"
    assert run.state.running_since == run.now


def test_a_run_without_an_id_does_not_start_and_says_so():
    run = Run()
    run.all_beat(run_id="")
    run.tick()
    assert run.state.phase == STARTING
    while run.state.phase == STARTING:
        run.all_beat(run_id="")
        run.tick(1.0)
    assert run.now == 1061.0
    assert "run id" in run.state.stop_reason


def test_who_has_not_joined_is_named_with_its_address():
    cluster = ClusterSpec(("ps:1", "ps:2"), ("memory:1", "memory:2"), ("learner:1",), 2)
    run = Run(cluster=cluster)
    run.live(60.0, ("ps/0", "memory/0"))
    assert run.state.phase == STARTING
    run.live(1.0, ("ps/0", "memory/0"))
    assert run.state.phase == STOPPING
    reason = run.state.stop_reason
    assert reason.startswith("failure: after 60 s")
    for missing in ("ps/1 (ps:2)", "memory/1 (memory:2)", "learner/0 (learner:1)"):
        assert missing in reason
    assert "an actor" in reason and "ps/0" not in reason and "memory/0" not in reason


def test_a_stop_before_the_start_ends_the_run():
    run = Run()
    run.beat("memory/0", stop_request="SIGTERM at memory/0")
    run.tick()
    assert run.state.phase == STOPPING and run.state.running_secs(run.now) == 0.0
    run.beat("memory/0", state=DONE)
    run.tick()
    assert not run.state.may_leave  # others may be on their way
    for name in ("ps/0", "learner/0", "actor/0"):
        run.beat(name)  # refused: the run is ending
        run.tick()
    assert run.state.may_leave


def test_a_stop_before_the_start_does_not_wait_for_ever():
    run = Run()
    run.beat("memory/0", stop_request="SIGTERM at memory/0")
    run.beat("memory/0", state=DONE)
    run.live(30.0, ())
    assert not run.state.may_leave
    run.live(2.0, ())
    assert run.state.may_leave


# Beats and totals.


def test_beats_that_are_repeated_reordered_or_lost_do_no_harm():
    run = running()
    run.beat("actor/0", number=102, totals={"env_steps": 20.0})
    run.beat("actor/0", number=102, totals={"env_steps": 99.0})
    run.beat("actor/0", number=101, totals={"env_steps": 10.0}, state=DONE)
    assert run.state.books.totals()["env_steps"] == 20.0
    assert run.member("actor/0").state == JOINED
    run.beat("actor/0", number=150, totals={"env_steps": 50.0})
    assert run.state.books.totals()["env_steps"] == 50.0


def test_totals_of_restarted_incarnations_add_up():
    run = running()
    run.beat("actor/0", 1, totals={"env_steps": 20.0, "episodes": 1.0})
    run.beat("actor/0", 2, totals={"env_steps": 3.0})
    run.beat("actor/1", 1, totals={"env_steps": 100.0})
    run.beat("memory/0", totals={"inserted": 7.0})
    assert run.state.books.totals() == {
        "env_steps": 123.0,
        "episodes": 1.0,
        "inserted": 7.0,
    }
    assert run.state.books.job_totals() == {
        "ps": {},
        "memory": {"inserted": 7.0},
        "learner": {},
        "actor": {"env_steps": 123.0, "episodes": 1.0},
    }


def test_an_older_incarnation_is_ignored():
    run = running()
    run.beat("actor/0", 5, totals={"env_steps": 1.0})
    run.beat("actor/0", 4, number=10_000, state=FAILED, totals={"env_steps": 50.0})
    assert run.member("actor/0").incarnation == 5
    assert run.state.phase == RUNNING and run.state.books.totals()["env_steps"] == 1.0


# Losses.


def test_a_task_without_beats_is_lost_and_the_run_fails():
    run = running(policies=FailurePolicies(memory="fail"))
    others = ("ps/0", "learner/0", "actor/0")
    run.live(15.0, others)
    assert run.member("memory/0").state == JOINED
    run.live(1.0, others)
    assert run.member("memory/0").state == LOST
    assert run.state.stop_reason == "failure: memory/0 is lost: no beats for 16 s"
    run.beat("memory/0")  # it has to come back as another
    assert run.member("memory/0").state == LOST


def test_the_monitors_own_lateness_is_not_silence():
    run = running(policies=STRICT)
    run.tick(500.0)
    assert run.state.phase == RUNNING
    run.live(1.0, TASKS[:3])
    assert run.state.phase == RUNNING
    run.live(20.0, TASKS[:3])
    assert run.state.stop_reason.startswith("failure: actor/0 is lost")


def test_beats_that_waited_for_a_late_monitor_do_not_count_as_heard_later():
    run = running(policies=STRICT)
    run.now += 500.0
    run.all_beat()  # what had piled up is read ahead of the tick
    run.tick()
    run.live(17.0, TASKS[:3])
    assert run.state.stop_reason.startswith("failure: actor/0 is lost")


def test_a_stall_is_reported_once_and_is_no_failure(caplog):
    run = running()

    def beat_without_moving(secs):
        for _ in range(secs):
            run.all_beat(("actor/0",), progress=7)
            run.live(1.0, TASKS[:3])

    with caplog.at_level(logging.WARNING):
        beat_without_moving(40)
        assert caplog.text == ""
        beat_without_moving(60)
    assert caplog.text.count("actor/0 beats but has not moved") == 1
    assert run.state.phase == RUNNING
    run.beat("actor/0", progress=8)
    assert not run.member("actor/0").stalled


# Stopping.


@pytest.mark.parametrize(
    ("condition", "below", "at"),
    [
        ({"max_env_steps": 100}, {"env_steps": 99}, {"env_steps": 100}),
        ({"max_learner_steps": 7}, {"learner_steps": 6}, {"learner_steps": 7}),
    ],
)
def test_limits_on_counts(condition, below, at):
    run = running(**condition)
    run.beat("actor/0", totals=below)
    run.tick()
    assert run.state.phase == RUNNING
    run.beat("actor/0", totals=at)
    run.tick()
    ((key, limit),) = condition.items()
    assert run.state.phase == STOPPING
    assert run.state.stop_reason == f"{key}={limit} reached"


def test_seconds_count_from_the_end_of_the_start_up():
    run = Run(max_seconds=10.0)
    run.live(30.0, TASKS[:3])
    run.started()
    run.live(9.0)
    assert run.state.phase == RUNNING
    run.live(1.0)
    assert run.state.stop_reason == "max_seconds=10.0 reached"
    run.live(5.0)
    assert run.state.running_secs(run.now) == 10.0


def test_target_return_is_that_of_the_greedy_evaluation():
    run = running(target_return=9.0)
    run.beat("actor/0", gauges={"mean_return": 50.0, "evaluation_return": 8.9})
    run.tick()
    assert run.state.phase == RUNNING
    run.beat("actor/0", gauges={"evaluation_return": 9.0})
    run.tick()
    assert run.state.stop_reason == "target_return=9.0 reached: 9.0"


def test_without_conditions_a_run_goes_on():
    run = running()
    run.beat("actor/0", totals={"env_steps": 1e12}, gauges={"evaluation_return": 1e9})
    run.live(1000.0)
    assert run.state.phase == RUNNING


def test_the_first_reason_stays():
    run = running(max_env_steps=10)
    run.beat("learner/0", stop_request="SIGINT at learner/0")
    run.beat("memory/0", state=FAILED, message="ValueError: no")
    run.beat("actor/0", totals={"env_steps": 10})
    stopped = run.now
    run.tick(5.0)
    assert run.state.stop_reason == "SIGINT at learner/0"
    assert run.state.stopping_since == stopped


def test_a_failure_is_the_reason_with_its_task_and_message():
    run = running(policies=STRICT)
    run.beat("actor/0", state=FAILED, message="ValueError: no")
    assert run.state.stop_reason == "failure: actor/0: ValueError: no"


def test_an_actor_that_leaves_is_no_failure_until_nobody_comes():
    run = running()
    run.beat("actor/0", state=DONE)
    run.live(60.0, TASKS[:3])
    assert run.state.phase == RUNNING
    run.live(1.0, TASKS[:3])
    assert run.state.stop_reason.startswith("failure: no actor")


def test_another_actor_in_time_keeps_the_run_alive():
    run = running()
    run.beat("actor/0", state=DONE)
    run.live(50.0, TASKS[:3])
    run.live(100.0, (*TASKS[:3], "actor/7"))
    assert run.state.phase == RUNNING


# Refusals.


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"Run.seed": "1"}, "Run.seed is 1 there, and 0 in the run"),
        ({}, "Run.seed is not set there, and 0 in the run"),
        ({"Run.seed": "0", "x": "2"}, "x is 2 there, and not set in the run"),
    ],
)
def test_a_config_that_differs_is_refused_with_both_values(config, words):
    run = Run()
    run.beat("actor/0", config=config, totals={"env_steps": 5.0})
    member = run.member("actor/0")
    assert member.state == REFUSED and words in member.message
    assert run.state.phase == STARTING and "env_steps" not in run.state.books.totals()
    run.beat("memory/0", config=config)
    assert run.state.stop_reason.startswith("failure: memory/0 was refused: ")
    assert words in run.state.stop_reason


def test_specs_are_learned_from_the_first_task_that_has_them():
    run = Run()
    spec = {"spec:a": "float32[4]", "spec:b": "int32[]"}
    run.beat("ps/0")
    run.beat("memory/0", config=run.config | spec)
    run.beat("ps/1")
    run.beat("actor/0", config=run.config | spec)
    assert all(m.state == JOINED for m in run.state.members.values())
    run.beat("actor/1", config=run.config | spec | {"spec:a": "float32[5]"})
    message = run.member("actor/1").message
    assert "spec:a is float32[5] there, and float32[4] in the run" in message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"spec:a": "x"}, "spec:b is not set there, and y in the run"),
        (
            {"spec:a": "x", "spec:b": "y", "spec:c": "z"},
            "spec:c is z there, and not set in the run",
        ),
    ],
)
def test_a_spec_with_more_or_fewer_leaves_is_refused(spec, words):
    run = Run()
    run.beat("memory/0", config=run.config | {"spec:a": "x", "spec:b": "y"})
    run.beat("actor/0", config=run.config | spec)
    assert run.member("actor/0").state == REFUSED
    assert words in run.member("actor/0").message


def test_nothing_is_learned_from_a_task_that_is_refused():
    run = Run()
    run.beat("actor/0", config={"Run.seed": "0", "spec:a": "x", "tail": "1"})
    assert run.member("actor/0").state == REFUSED
    run.beat("actor/1", config=run.config | {"spec:a": "y"})
    assert run.member("actor/1").state == JOINED


def test_a_late_joiner_is_told_that_the_run_is_ending():
    run = running()
    run.state.stop("enough", run.now)
    run.beat("actor/1")
    assert run.member("actor/1").state == REFUSED
    assert run.member("actor/1").message == ENDING
    assert run.state.stop_reason == "enough"


@pytest.mark.parametrize("ending", [False, True])
def test_a_refused_task_takes_nobodys_place(ending):
    run = running()
    if ending:
        run.state.stop("enough", run.now)
    for _ in range(2):
        run.beat("actor/0", 2, config=None if ending else {"Run.seed": "9"})
    run.beat("actor/0", 1, totals={"env_steps": 9.0})
    assert run.member("actor/0").incarnation == 1
    assert run.state.books.totals()["env_steps"] == 9.0
    refused = published_view(run.state, run.now)["members"]["actor/0/2"]
    assert refused[0] == 2 and refused[2] == REFUSED
    assert ("Run.seed is 9" in refused[3]) != ending


# The farewell.


def test_finished_only_when_all_are_gone_and_ps_0_leaves_last():
    cluster = ClusterSpec(("ps:1", "ps:2"), ("memory:1",), ("learner:1",), 1)
    run = Run(cluster=cluster)
    everybody = (*TASKS, "ps/1")
    run.all_beat(everybody)
    run.tick()
    run.state.stop("enough", run.now)
    for name in ("actor/0", "memory/0", "learner/0"):
        run.tick(1.0)
        assert run.state.phase == STOPPING
        run.beat(name, state=DONE)
    run.tick()
    assert run.state.phase == FINISHED and not run.state.may_leave
    run.beat("ps/1", state=DONE)
    assert run.state.may_leave


def test_a_task_lost_in_the_farewell_holds_nobody_up():
    run = running()
    run.state.stop("enough", run.now)
    run.beat("actor/0", state=DONE)
    run.beat("learner/0", state=DONE)
    run.live(20.0, ("ps/0",))
    assert run.member("memory/0").state == LOST
    assert run.state.may_leave and run.state.stop_reason == "enough"


def test_near_the_end_beats_come_faster():
    run = running(max_env_steps=100)
    assert not run.state.near_end(run.now)
    run.live(10.0)
    run.beat("actor/0", totals={"env_steps": 50})
    assert not run.state.near_end(run.now)  # 10 s are left
    run.beat("actor/0", totals={"env_steps": 80})
    assert run.state.near_end(run.now)  # 2.5 s are left
    run.state.stop("enough", run.now)
    assert not run.state.near_end(run.now)


def test_the_view_is_json_and_tells_what_tasks_need():
    run = running(max_env_steps=100)
    run.beat("actor/0", gauges={"best_version": 3, "best_return": 7.5})
    number = run.beat("actor/0", gauges={"best_version": 4, "best_return": 8.5})
    view = json.loads(json.dumps(published_view(run.state, run.now)))
    assert view["members"]["actor/0"] == [1, number, JOINED, ""]
    assert view["run_id"] == "a1" and view["phase"] == RUNNING
    assert (view["best_version"], view["best_return"]) == (4, 8.5)
    assert view["stop_time"] is None
    run.state.stop("enough", run.now)
    run.beat("learner/0", kept=STOPPING)
    view = json.loads(json.dumps(published_view(run.state, run.now + 3.0)))
    assert view["stop_reason"] == "enough" and view["stop_time"] > 1e9
