"""Beats over a real server: who joins, what all hear, how tasks leave."""

import dataclasses
import threading
import time

import pytest

from distrl.core.errors import (
    PeerUnreachable,
    RunEnding,
    RunFailed,
    TaskRefused,
)
from distrl.core.threads import StoppableThread
from distrl.lifecycle.heartbeat import decode, encode
from distrl.lifecycle.run_state import DONE, FAILED, FINISHED, LOST, RUNNING, Beat
from distrl.lifecycle.settings import Timeouts

pytestmark = pytest.mark.timeout(60)

QUICK = Timeouts(
    startup_secs=2.0, heartbeat_secs=3.0, shutdown_secs=2.0, beat_period_secs=0.2
)


def wait_until_listed(task, joining):
    while task._heartbeat is None or not task._is_listed:
        joining.check()
        threading.Event().wait(0.02)


def test_a_beat_survives_its_journey():
    beat = Beat(
        "actor", 3, 17, 4, totals={"env_steps": 5.0}, gauges={"x": [1, 2]}, config={}
    )
    assert decode(encode(beat)) == beat


def test_all_hear_what_one_says(cluster):
    cluster.start_ps()
    tasks = cluster.start()
    assert all(task.view.run_id == "a1" for task in tasks.values())
    actor, memory = tasks["actor"], tasks["memory"]
    actor.counters.add("env_steps", 7)
    actor.gauges |= {"best_version": 3, "best_return": 9.0}
    number = actor.heartbeat.say()
    assert actor.heartbeat.wait_for(lambda: actor.heartbeat.knows(number), 10.0)
    assert actor.view.totals["env_steps"] == 7
    assert memory.heartbeat.wait_for(
        lambda: memory.view.totals.get("env_steps") == 7, 10.0
    )
    assert memory.view.best_version == 3
    assert memory.view.members["actor/0"][0] == actor.producer.incarnation
    assert not actor.should_stop and not memory.should_stop


def test_a_signal_at_a_task_stops_the_run(cluster):
    cluster.start_ps()
    tasks = cluster.start()
    tasks["memory"].signals.received = "SIGTERM"
    for task in tasks.values():
        assert task.heartbeat.wait_for(lambda t=task: t.should_stop, 10.0)
        assert task.view.stop_reason == "SIGTERM at memory/0"
        assert not task.view.failed


def test_a_signal_at_an_actor_concerns_it_alone(cluster):
    cluster.start_ps()
    tasks = cluster.start()
    tasks["actor"].signals.received = "SIGTERM"
    assert tasks["actor"].should_stop
    tasks["actor"].leave()
    memory = tasks["memory"]
    assert memory.heartbeat.wait_for(
        lambda: memory.view.members["actor/0"][2] == DONE, 10.0
    )
    assert memory.view.phase == RUNNING and not memory.should_stop


def test_a_task_whose_config_differs_hears_both_values(cluster):
    cluster.start_ps()
    actor = cluster.task("actor", config={"Run.seed": "1"})
    with pytest.raises(TaskRefused, match="Run.seed is 1 there, and 0 in the run"):
        actor.join({"array": "float32[4]"})


def test_a_task_whose_spec_differs_hears_both_values(cluster):
    cluster.start_ps()
    tasks = cluster.start()
    actor = cluster.task("actor", 1)
    with pytest.raises(TaskRefused, match=r"spec:array is float32\[5\] there.*\[4\]"):
        actor.join({"array": "float32[5]"})
    assert not tasks["memory"].should_stop


def test_who_comes_too_late_hears_that_the_run_is_ending(cluster):
    cluster.start_ps()
    tasks = cluster.start()
    tasks["learner"].heartbeat.say(stop_request="enough")
    memory = tasks["memory"]
    assert memory.heartbeat.wait_for(lambda: memory.should_stop, 10.0)
    for late in (cluster.task("actor", 1), cluster.task("actor", 0)):
        with pytest.raises(RunEnding):
            late.join({"array": "float32[4]"})
    members = memory.view.members
    assert members["actor/0"][0] == tasks["actor"].producer.incarnation


def test_a_run_that_ends_before_it_has_an_id_lets_go_of_who_had_joined(cluster):
    cluster.start_ps()
    memory = cluster.task("memory")
    joining = StoppableThread("join", lambda stopping: memory.join({})).start()
    wait_until_listed(memory, joining)
    memory.signals.received = "SIGINT"
    with pytest.raises(RunEnding, match="SIGINT at memory/0"):
        joining.join(20.0)
    assert cluster.monitor.wait(10.0)


def test_a_newer_incarnation_fences_the_older_one(cluster):
    cluster.start_ps()
    old = cluster.start()["actor"]
    new = cluster.task("actor")
    new.join({"array": "float32[4]"})
    with pytest.raises(TaskRefused, match="a newer one has taken its place"):
        old.heartbeat.wait_for(lambda: False, 10.0)
    with pytest.raises(TaskRefused):
        _ = old.should_stop
    assert not new.should_stop


def test_a_ps_that_never_comes_up_is_named_with_its_address(make_cluster):
    cluster = make_cluster(QUICK)
    actor = cluster.task("actor")
    began = time.monotonic()
    with pytest.raises(PeerUnreachable, match=f"ps/0 at {cluster.spec.ps[0]}"):
        actor.join({})
    assert time.monotonic() - began < 2 * QUICK.startup_secs + 2.0


def test_waiting_for_ps_0_costs_no_cpu(make_cluster):
    cluster = make_cluster(dataclasses.replace(QUICK, startup_secs=4.0))
    learner = cluster.task("learner")
    joining = StoppableThread(
        "join", lambda stop: learner.join({}, run_id="a1")
    ).start()
    began = time.process_time()
    with pytest.raises(PeerUnreachable):
        joining.join(20.0)
    assert time.process_time() - began < 2.0


def test_a_ps_that_comes_up_later_is_found(cluster):
    memory = cluster.task("memory")
    joining = StoppableThread("join", lambda stopping: memory.join({})).start()
    learner = cluster.task("learner")
    later = StoppableThread(
        "join", lambda stopping: learner.join({}, run_id="a1")
    ).start()
    threading.Event().wait(0.5)  # both have knocked in vain
    cluster.start_ps()
    joining.join(30.0)
    later.join(30.0)
    assert memory.view.run_id == "a1"


def test_nobody_waits_for_a_run_id_for_ever(make_cluster):
    cluster = make_cluster(QUICK)
    cluster.start_ps()
    memory = cluster.task("memory")
    with pytest.raises(RunFailed, match="learner/0"):
        memory.join({})


def test_a_task_that_dies_ends_the_run_by_name(cluster):
    cluster.start_ps()
    tasks = cluster.start()
    tasks["memory"].heartbeat.stop()  # no word of leaving
    for task in (tasks["actor"], tasks["learner"]):
        assert task.heartbeat.wait_for(lambda t=task: t.should_stop, 20.0)
        assert task.view.failed
        assert "memory/0 is lost" in task.view.stop_reason
        assert task.view.members["memory/0"][2] == LOST


def test_a_failure_reaches_all_with_its_message(cluster):
    cluster.start_ps()
    tasks = cluster.start()
    tasks["memory"].fail("ValueError: no such thing")
    actor = tasks["actor"]
    assert actor.heartbeat.wait_for(lambda: actor.should_stop, 10.0)
    assert actor.view.members["memory/0"][2] == FAILED
    assert actor.view.stop_reason == "failure: memory/0: ValueError: no such thing"


def test_a_ps_that_dies_is_noticed(make_cluster):
    cluster = make_cluster(dataclasses.replace(QUICK, startup_secs=20.0))
    cluster.start_ps()
    actor = cluster.start()["actor"]
    monitor, cluster.monitor = cluster.monitor, None
    monitor._beats.owner.close()  # nobody takes beats any more
    with pytest.raises(PeerUnreachable, match="ps/0 at"):
        actor.heartbeat.wait_for(lambda: False, 20.0)
    with pytest.raises(PeerUnreachable):
        _ = actor.should_stop


def test_ps_0_leaves_last(cluster):
    cluster.start_ps()
    tasks = cluster.start()
    tasks["learner"].heartbeat.say(stop_request="enough")
    for job in ("actor", "memory"):
        task = tasks[job]
        assert task.heartbeat.wait_for(lambda t=task: t.should_stop, 10.0)
        task.leave()
        assert not cluster.monitor.may_leave.is_set()
    learner = tasks["learner"]
    assert learner.heartbeat.wait_for(
        lambda: learner.view.all_gone("actor") and learner.view.all_gone("memory"), 10.0
    )
    assert learner.view.phase != FINISHED
    learner.leave()
    assert cluster.monitor.wait(10.0)
    assert cluster.monitor.stop_reason == "enough"


@pytest.mark.parametrize("job", ["actor", "memory"])
def test_a_signal_ends_the_wait_for_a_ps_that_is_not_there(cluster, job):
    task = cluster.task(job)
    joining = StoppableThread("join", lambda stopping: task.join({})).start()
    task.signals.received = "SIGINT"
    with pytest.raises(RunEnding, match="SIGINT"):
        joining.join(8.0)


def test_an_actor_that_leaves_while_it_joins_is_done(cluster):
    cluster.start_ps()
    memory, actor = cluster.task("memory"), cluster.task("actor")
    joining = StoppableThread("join", lambda stopping: memory.join({})).start()
    leaving = StoppableThread("join", lambda stopping: actor.join({})).start()
    wait_until_listed(actor, leaving)
    actor.signals.received = "SIGTERM"
    with pytest.raises(RunEnding):
        leaving.join(8.0)
    assert memory.heartbeat.wait_for(
        lambda: memory.view.members["actor/0"][2] == DONE, 10.0
    )
    assert not memory.view.stopping
    cluster.task("learner").join({}, run_id="a1")
    joining.join(10.0)
