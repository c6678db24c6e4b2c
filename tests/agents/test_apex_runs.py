"""Whole runs of Ape-X as threads: they end from every phase, and the books balance."""

import dataclasses
import threading
import time

import gymnasium
import numpy as np
import pytest
from local_run import STRICT, TIMEOUTS, Killed, cartpole, check_ledger, make_agent

from distrl.core.errors import Diverged, RunEnding, RunFailed

pytestmark = pytest.mark.timeout(60)

# Under these, whoever waits in the farewell for somebody who is gone fails the test.
PATIENT = dataclasses.replace(TIMEOUTS, shutdown_secs=50.0)


def test_max_env_steps(make_run):
    run = make_run(max_env_steps=1500)
    run.start(make_agent())
    summary = run.join_well()
    check_ledger(summary)
    assert summary["stop_reason"] == "max_env_steps=1500 reached"
    assert summary["env_steps"] >= 1500 and summary["learner_steps"] > 0
    assert summary["episodes"] > 10
    assert (run.run_dir / "export").is_dir()
    saved = (run.run_dir / "checkpoints").iterdir()
    newest = max(path for path in saved if path.is_dir())
    assert str(summary["learner_steps"]) in newest.name


def test_max_learner_steps_is_met_exactly(make_run):
    run = make_run(max_learner_steps=33)  # in the middle of a bundle
    run.start(make_agent())
    summary = run.join_well()
    assert summary["learner_steps"] == 33
    assert summary["rows"]["trained"] == 33 * 16
    check_ledger(summary)


def test_several_ps_memories_and_actors(make_run):
    run = make_run(num_ps=2, num_memories=2, num_actors=3, max_env_steps=2000)
    run.start(make_agent())
    summary = run.join_well(50.0)
    check_ledger(summary)
    for index in (0, 1):
        assert run.tasks[f"memory/{index}"].counters.get("inserted") > 0
        assert run.tasks[f"memory/{index}"].counters.get("sampled") > 0


def test_the_order_of_starting_does_not_matter(make_run):
    run = make_run(max_env_steps=300)
    agent = make_agent()
    for name in ("actor/1", "learner/0", "actor/0", "memory/0", "ps/0"):
        run.start(agent, [name])
    check_ledger(run.join_well())


# A stop in every phase.


@pytest.mark.parametrize("at", ["memory/0", "ps/0"])
def test_a_stop_before_learner_and_actors_come(make_run, at):
    run = make_run()
    agent = make_agent()
    run.start(agent, ["ps/0", "memory/0"])
    run.wait_until(lambda: run.tasks["memory/0"]._heartbeat is not None)
    memory = run.tasks["memory/0"]
    run.wait_until(lambda: memory.view.entry(memory.producer) is not None)
    run.tasks[at].signals.received = "SIGTERM"
    errors = run.join(20.0)
    assert errors["ps/0"] is None and isinstance(errors["memory/0"], RunEnding)


def test_a_stop_before_the_actors_come(make_run):
    run = make_run()
    agent = make_agent()
    run.start(agent, ["ps/0", "memory/0", "learner/0"])
    run.wait_until(
        lambda: all(
            run.tasks[name]._heartbeat is not None
            and run.tasks[name].view.run_id != ""
            and run.tasks[name]._is_listed
            for name in ("memory/0", "learner/0")
        )
    )
    began = time.monotonic()
    run.tasks["learner/0"].signals.received = "SIGTERM"
    summary = run.join_well()
    assert time.monotonic() - began < 15.0
    assert summary["env_steps"] == summary["learner_steps"] == 0
    assert summary["stop_reason"] == "SIGTERM at learner/0"
    check_ledger(summary)


def test_an_actor_that_comes_while_the_run_ends_is_sent_away(make_run):
    gate = threading.Event()

    class SlowLearnerAgent(type(make_agent())):
        def make_learner(self, task, spec):
            loop = super().make_learner(task, spec)
            drain = loop.drain
            loop.drain = lambda: (gate.wait(20.0), drain())
            return loop

    agent = make_agent()
    slow = make_agent()
    slow.__class__ = SlowLearnerAgent
    run = make_run(max_env_steps=300)
    run.start(agent, learner=slow)
    memory = run.tasks["memory/0"]
    run.wait_until(lambda: memory._heartbeat is not None and memory.view.stopping)
    run.start(agent, ["actor/5"])
    with pytest.raises(RunEnding):
        run.threads["actor/5"].join(20.0)
    del run.threads["actor/5"]
    gate.set()
    check_ledger(run.join_well())


def test_a_stop_before_there_is_enough_to_sample(make_run):
    run = make_run()
    run.start(make_agent(min_size_to_sample=2000, capacity=2000))
    inserted = run.tasks["memory/0"].counters
    run.wait_until(lambda: inserted.get("inserted") > 100)
    run.tasks["ps/0"].signals.received = "SIGINT"
    summary = run.join_well()
    check_ledger(summary)
    assert summary["learner_steps"] == 0 and summary["env_steps"] > 100
    assert summary["stop_reason"] == "SIGINT at ps/0"


def test_a_stop_while_actors_wait_for_the_limiter(make_run):
    """The learner never trains, so that inserting is held back until the end."""
    gate = threading.Event()

    class HeldLearnerAgent(type(make_agent())):
        def make_learner(self, task, spec):
            loop = super().make_learner(task, spec)
            loop.step = gate.wait
            return loop

    held = make_agent()
    held.__class__ = HeldLearnerAgent
    run = make_run(num_actors=3)
    run.start(make_agent(), learner=held)
    run.wait_until(run.running)
    actors = [run.tasks[f"actor/{i}"] for i in range(3)]

    def env_steps():
        return sum(actor.counters.get("env_steps") for actor in actors)

    run.wait_until(lambda: env_steps() > 0)
    last = -1.0
    while last != env_steps():  # until nobody moves any more
        last = env_steps()
        gate.wait(1.0)
    began = time.monotonic()
    run.tasks["memory/0"].signals.received = "SIGTERM"
    summary = run.join_well()
    assert time.monotonic() - began < 15.0
    check_ledger(summary)
    assert summary["env_steps"] >= last > 0


def test_evaluations_reach_the_target_and_leave_the_best(make_run):
    run = make_run(target_return=1.0)
    acting = {"evaluation_period_secs": 0.01, "evaluation_episodes": 2}
    run.start(make_agent(acting=acting))
    summary = run.join_well()
    assert summary["stop_reason"].startswith("target_return=1.0 reached")
    assert (run.run_dir / "checkpoints" / "best").is_dir()
    check_ledger(summary)


# Actors that leave, and tasks that fail.


def test_an_actor_leaves_alone_while_the_run_goes_on(make_run):
    run = make_run()
    run.start(make_agent())
    learner = run.tasks["learner/0"]
    run.wait_until(lambda: learner.counters.get("learner_steps") > 5)
    run.tasks["actor/1"].signals.received = "SIGTERM"
    run.threads["actor/1"].join(20.0)
    steps = learner.counters.get("learner_steps")
    run.wait_until(lambda: learner.counters.get("learner_steps") > steps + 5)
    assert learner.view.phase == "running"
    run.tasks["learner/0"].signals.received = "SIGTERM"
    check_ledger(run.join_well())


def test_an_actor_that_left_before_it_could_end_its_channels_is_not_awaited(make_run):
    run = make_run(num_actors=1, timeouts=PATIENT, max_env_steps=300)
    agent = make_agent()
    run.start(agent, ["ps/0", "actor/1"])
    leaving = run.tasks["actor/1"]
    run.wait_until(lambda: leaving._heartbeat is not None and leaving._is_listed)
    leaving.signals.received = "SIGTERM"
    with pytest.raises(RunEnding):
        run.threads.pop("actor/1").join(20.0)
    run.start(agent, ["memory/0", "learner/0", "actor/0"])
    check_ledger(run.join_well(40.0))


class Breaking(gymnasium.Wrapper):
    """Raises in its 50th step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 50:
            raise ArithmeticError("a broken world")
        return self.env.step(action)


def test_an_environment_that_raises_ends_the_run_for_all(make_run):
    run = make_run(policies=STRICT)
    broken = make_agent(lambda: Breaking(cartpole()))
    run.start(make_agent(), ["ps/0", "memory/0", "learner/0", "actor/1"])
    run.start(broken, ["actor/0"])
    began = time.monotonic()
    errors = run.join(40.0)
    assert time.monotonic() - began < 35.0
    assert "a broken world" in str(errors.pop("actor/0"))
    for name, error in errors.items():
        assert isinstance(error, RunFailed), (name, error)
        assert "actor/0" in str(error) and "a broken world" in str(error)
    assert "a broken world" in run.summary()["stop_reason"]


def test_learning_that_diverges_is_named_by_the_learner(make_run):
    class DivergingAgent(type(make_agent())):
        def make_learner(self, task, spec):
            loop = super().make_learner(task, spec)
            nothing = np.full(16, np.nan, np.float32)
            loop.session.train = lambda batch, measure=False: (nothing, {})
            return loop

    diverging = make_agent()
    diverging.__class__ = DivergingAgent
    run = make_run()
    run.start(make_agent(), learner=diverging)
    errors = run.join(40.0)
    assert isinstance(errors.pop("learner/0"), Diverged)
    for error in errors.values():
        assert "learner/0: Diverged: not finite at learner step" in str(error)


def test_a_learner_that_raises_ends_the_run_for_all(make_run):
    class BrokenLearnerAgent(type(make_agent())):
        def make_learner(self, task, spec):
            loop = super().make_learner(task, spec)

            def step(timeout):
                raise ArithmeticError("no gradient")

            loop.step = step
            return loop

    broken = make_agent()
    broken.__class__ = BrokenLearnerAgent
    run = make_run()
    run.start(make_agent(), learner=broken)
    errors = run.join(40.0)
    assert "no gradient" in str(errors.pop("learner/0"))
    for name, error in errors.items():
        assert isinstance(error, RunFailed), (name, error)
        assert "learner/0: ArithmeticError: no gradient" in str(error)


def test_a_memory_that_is_missing_is_named(make_run):
    timeouts = dataclasses.replace(PATIENT, startup_secs=8.0)
    run = make_run(timeouts=timeouts)
    run.start(make_agent(), ["ps/0", "learner/0", "actor/0"])
    errors = run.join(40.0)
    for name, error in errors.items():
        assert isinstance(error, RunFailed), (name, error)
        assert f"memory/0 ({run.cluster.memory[0]})" in str(error)


class Fragile:
    """Dies in its tenth call, then in every one."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls >= 10:
            raise Killed
        return self.function(*arguments)


@pytest.mark.parametrize("job", ["actor", "memory", "learner"])
def test_a_task_that_dies_ends_the_run_for_all_in_bounded_time(make_run, job):
    class FragileAgent(type(make_agent())):
        def make_actor(self, *arguments):
            actor = super().make_actor(*arguments)
            actor.step = Fragile(actor.step)
            return actor

        def make_memory(self, *arguments):
            memory = super().make_memory(*arguments)
            memory.serve = Fragile(memory.serve)
            return memory

        def make_learner(self, *arguments):
            loop = super().make_learner(*arguments)
            loop.step = Fragile(loop.step)
            return loop

    fragile = make_agent()
    fragile.__class__ = FragileAgent
    run = make_run(num_actors=1, timeouts=PATIENT, policies=STRICT)
    run.start(make_agent(), **{job: fragile})
    errors = run.join(40.0)
    assert isinstance(errors.pop(f"{job}/0"), Killed)
    for name, error in errors.items():
        assert isinstance(error, RunFailed), (name, error)
        assert f"{job}/0 is lost" in str(error)
