"""A run state, a clock that the test turns, and tasks that beat."""

import itertools

from distrl.cluster.spec import ClusterSpec
from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.lifecycle.run_state import RUNNING, Beat, RunState
from distrl.lifecycle.settings import StopConditions, Timeouts

CLUSTER = ClusterSpec(("ps:1",), ("memory:1",), ("learner:1",), 1)
TIMEOUTS = Timeouts(
    startup_secs=60.0,
    heartbeat_secs=15.0,
    stall_secs=40.0,
    shutdown_secs=30.0,
    beat_period_secs=1.0,
)
DEFAULT = FailurePolicies()
TASKS = ("ps/0", "memory/0", "learner/0", "actor/0")


class Run:
    """A run state, a clock, and tasks whose beats are numbered for them."""

    def __init__(self, config=None, cluster=CLUSTER, policies=DEFAULT, **conditions):
        self.now = 1000.0
        self.config = {"Run.seed": "0"} if config is None else config
        stop = StopConditions(**conditions)
        self.state = RunState(cluster, self.config, stop, TIMEOUTS, self.now, policies)
        self.numbers = itertools.count(1)

    def beat(self, name, incarnation=1, number=None, **fields):
        job, task = name.split("/")
        if job == "learner":
            fields.setdefault("run_id", "a1")
        fields.setdefault("config", self.config)
        number = next(self.numbers) if number is None else number
        self.state.receive(
            Beat(job, int(task), incarnation, number, **fields), self.now
        )
        return number

    def all_beat(self, names=TASKS, **fields):
        for name in names:
            self.beat(name, **fields)

    def tick(self, secs=0.0):
        self.now += secs
        self.state.tick(self.now)

    def live(self, secs, names=TASKS):
        """Time passes in small steps, and these tasks beat and move."""
        end = self.now + secs
        while self.now < end:
            self.all_beat(names, progress=int(self.now))
            self.tick(1.0)

    def started(self):
        self.all_beat()
        self.tick()
        return self

    def member(self, name):
        return self.state.members[name]


def running(also="", **arguments):
    """A run whose tasks, and `also` another one, have joined."""
    run = Run(**arguments)
    if also:
        run.beat(also)
    run.started()
    assert run.state.phase == RUNNING
    return run
