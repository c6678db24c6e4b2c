"""Small runs under a fake clock: whatever crashes and comes late, the run ends."""

import functools
import random

import pytest

from distrl.cluster.spec import ClusterSpec
from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.lifecycle.published_view import published_view
from distrl.lifecycle.run_state import (
    DONE,
    FINISHED,
    GONE,
    JOINED,
    LOST,
    REFUSED,
    RUNNING,
    STARTING,
    STOPPING,
    Beat,
    RunState,
)
from distrl.lifecycle.settings import StopConditions, Timeouts

CLUSTER = ClusterSpec(("a:1", "a:2"), ("b:1", "b:2"), ("c:1",), 2)
TIMEOUTS = Timeouts(startup_secs=30.0, heartbeat_secs=5.0, shutdown_secs=10.0)
STEP_SECS = 0.5
NUM_RUNS = 200
LISTED = ("ps/1", "memory/0", "memory/1", "learner/0", "actor/0", "actor/1")
PHASES = (STARTING, RUNNING, STOPPING, FINISHED)
# Start-up, the run itself, a loss found at each of its seven tasks in turn, and the
# wait for somebody who does not come back.
LIMIT_SECS = 30.0 + 100.0 + 8 * 6.0 + 30.0
POLICIES = (
    FailurePolicies(actor="fail"),
    FailurePolicies(),
    FailurePolicies(actor="ignore", memory="ignore"),
    FailurePolicies("restart(1)", "restart(2)", "restart(2)", "restart(2)"),
)


class SimulatedTask:
    """One incarnation: what it says, and how it leaves once it hears of the end.

    Nobody waits here but for what the view says, as in the real farewell: memories for
    actors, the learner for END of the memories, memories for END of the learner.
    """

    def __init__(self, name, incarnation, others):
        self.name, self.incarnation, self.others = name, incarnation, others
        self.job, task = name.split("/")
        self.index = int(task)
        self.number = self.env_steps = 0
        self.alive, self.ended, self.done = True, False, False
        self.view, self.kept = None, ""  # what it has heard, and keeps for ps 0

    def beat(self, stop_request):
        self.number += 1
        return Beat(
            self.job,
            self.index,
            self.incarnation,
            self.number,
            state=DONE if self.done else JOINED,
            progress=self.number,
            totals={"env_steps": self.env_steps},
            run_id="a1" if self.job == "learner" else "",
            stop_request=stop_request,
            kept=self.kept if self.job == "learner" else "",
            config={},
        )

    def gone(self, job):
        """Whether the view has nobody of this job left."""
        members = self.view["members"].items()
        return all(m[2] in GONE for n, m in members if n.startswith(f"{job}/"))

    def have_ended(self, job):
        """Whether END has come from everybody of this job who is not gone."""
        tasks = [t for t in self.others.values() if t.job == job]
        return all(
            t.ended or self.view["members"].get(t.name, [0, 0, DONE])[2] in GONE
            for t in tasks
        )

    def move(self, rng):
        """One step of its main loop under the newest view."""
        if self.view is None:
            return
        if self.view["phase"] == RUNNING and self.job == "actor":
            self.env_steps += rng.randrange(3)
        if self.view["phase"] not in (STOPPING, FINISHED):
            return
        if self.job == "actor":
            self.done = rng.random() < 0.5
        elif self.job == "memory":
            self.ended = self.ended or self.gone("actor")
            self.done = self.ended and self.have_ended("learner")
        elif self.job == "learner":
            self.ended = self.ended or self.have_ended("memory")
            self.done = self.ended and self.gone("memory") and self.gone("actor")
        else:
            self.done = self.view["phase"] == FINISHED


class Simulation:
    """A run whose messages get lost, whose tasks crash, whose actors come late."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.now = 100.0
        conditions = StopConditions(max_env_steps=self.rng.choice([None, 40]))
        policies = POLICIES[seed % len(POLICIES)]
        self.state = RunState(CLUSTER, {}, conditions, TIMEOUTS, self.now, policies)
        self.tasks = {}
        self.starts = {name: self.rng.uniform(0.0, 20.0) for name in LISTED}
        if self.rng.random() < 0.2:
            self.starts.pop(self.rng.choice(LISTED))
        self.starts["actor/2"] = self.rng.uniform(0.0, 60.0)
        self.crashes = {
            self.rng.choice([*LISTED, "actor/2"]): self.rng.uniform(0.0, 60.0)
            for _ in range(self.rng.randrange(4))
        }
        self.restart = self.rng.random() < 0.3
        self.stop_at = self.rng.uniform(0.0, 60.0)
        if policies.memory.startswith("restart"):
            self.stop_at *= 2  # behind the wait for who has to come back
        self.loss = self.rng.choice([0.0, 0.2])
        self.ps_number = 0

    def run(self):
        """Seconds until ps 0 may leave; None when it may not within the limit."""
        began, steps, phase = self.now, 0.0, STARTING
        while self.now - began < LIMIT_SECS:
            self.step(self.now - began)
            totals = self.state.books.totals().get("env_steps", 0)
            assert totals >= steps
            assert PHASES.index(self.state.phase) >= PHASES.index(phase)
            steps, phase = totals, self.state.phase
            if self.state.may_leave:
                return self.now - began
        return None

    def step(self, secs):
        names = sorted({*self.starts, *self.tasks})
        self.rng.shuffle(names)
        for name in names:
            if name in self.starts and secs >= self.starts[name]:
                self.start(name)
            if name in self.tasks and secs >= self.crashes.get(name, 1e9):
                self.crash(name, secs)
            task = self.tasks.get(name)
            if task is not None and task.alive:
                self.exchange(task, secs)
        self.now += STEP_SECS
        self.ps_number += 1
        own = Beat("ps", 0, 1, self.ps_number, progress=self.ps_number, config={})
        self.state.receive(own, self.now)
        self.state.tick(self.now)

    def start(self, name):
        del self.starts[name]
        incarnation = 1 + int(self.now)
        self.tasks[name] = SimulatedTask(name, incarnation, self.tasks)

    def crash(self, name, secs):
        del self.crashes[name]
        self.tasks[name].alive = False
        action = self.state.failures.policies.of(name.split("/")[0]).action
        if self.restart and (action == "restart" or name.startswith("actor")):
            self.starts[name] = secs + self.rng.uniform(1.0, 8.0)

    def exchange(self, task, secs):
        task.move(self.rng)
        request = "enough" if secs >= self.stop_at and task.name == "memory/0" else ""
        if self.rng.random() < self.loss:
            return
        said = task.done
        self.state.receive(task.beat(request), self.now)
        task.view, task.kept = published_view(self.state, self.now), self.state.phase
        key = task.name
        if f"{key}/{task.incarnation}" in task.view["members"]:
            key = f"{key}/{task.incarnation}"
        incarnation, _, state, _ = task.view["members"][key]
        out = incarnation != task.incarnation or state in (REFUSED, LOST)
        if out or said:
            task.alive = False


@functools.cache
def simulated(seed):
    simulation = Simulation(seed)
    return simulation, simulation.run()


@pytest.mark.parametrize("seed", range(NUM_RUNS))
def test_every_run_comes_to_its_end(seed):
    simulation, secs = simulated(seed)
    state = simulation.state
    assert secs is not None, (state.phase, state.stop_reason, state.members)
    assert all(m.state in GONE for name, m in state.members.items() if name != "ps/0")


def test_the_simulated_runs_are_of_every_kind():
    reasons = [simulated(seed)[0].state.stop_reason for seed in range(NUM_RUNS)]
    kinds = ("enough", "max_env_steps", "is lost", "have not joined", "not come back")
    for kind in kinds:
        assert sum(kind in reason for reason in reasons) >= 3, kind
