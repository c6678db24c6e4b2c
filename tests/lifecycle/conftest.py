"""A ps 0 in this process, for tests of what speaks to it."""

import pathlib
import threading
import time

import pytest
from addresses import unused_address
from spare_servers import RentedServers

from distrl.cluster import sessions
from distrl.cluster.channel import Address
from distrl.cluster.spec import ClusterSpec
from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.lifecycle.run_state import DONE, RunState
from distrl.lifecycle.settings import Run, StopConditions, Timeouts
from distrl.lifecycle.signals import Signals
from distrl.lifecycle.stop_monitor import StopMonitor
from distrl.lifecycle.task import Task

TIMEOUTS = Timeouts(
    startup_secs=20.0,
    heartbeat_secs=3.0,
    stall_secs=60.0,
    shutdown_secs=5.0,
    beat_period_secs=0.2,
)
CONFIG = {"Run.seed": "0"}
NOTHING_RETURNS = FailurePolicies(memory="fail", learner="fail", ps="fail")


class Cluster:
    """ps 0 with its monitor, and Tasks that join it; all in this process."""

    def __init__(
        self,
        run_dir: pathlib.Path,
        servers: RentedServers,
        timeouts: Timeouts,
        **conditions,
    ):
        ps = unused_address()  # nobody listens before it
        memory, learner = (servers.address(job, 0) for job in ("memory", "learner"))
        self.spec = ClusterSpec((ps,), (memory,), (learner,), 1)
        self.run_dir = run_dir
        (run_dir / "metrics").mkdir()
        stop = StopConditions(**conditions)
        self.config = Run(stop=stop, timeouts=timeouts, failures=NOTHING_RETURNS)
        self.tasks: list[Task] = []
        self.monitor: StopMonitor | None = None

    def start_ps(self) -> None:
        state = RunState(
            self.spec,
            CONFIG,
            self.config.stop,
            self.config.timeouts,
            time.monotonic(),
            self.config.failures,
        )
        address = Address("ps", 0, self.spec.ps[0])
        target = sessions.start_server("ps", 0, address.host).target
        self.monitor = StopMonitor(state, address, target, time.time_ns())

    def task(self, job: str, index: int = 0, config=CONFIG) -> Task:
        task = Task(job, index, self.spec, self.config, self.run_dir, config, Signals())
        self.tasks.append(task)
        return task

    def start(self) -> dict[str, Task]:
        """A memory, a learner and an actor that have joined; the run is running."""
        tasks = {job: self.task(job) for job in ("memory", "learner", "actor")}
        joins = [
            threading.Thread(
                target=task.join,
                args=({"array": "float32[4]"},),
                kwargs={"run_id": "a1"} if job == "learner" else {},
            )
            for job, task in tasks.items()
        ]
        for join in joins:
            join.start()
        for join in joins:
            join.join(30.0)
        for task in tasks.values():
            assert task.heartbeat.wait_for(
                lambda t=task: t.view.phase == "running", 20.0
            )
        return tasks

    def end(self) -> None:
        for task in self.tasks:
            if task._heartbeat is not None:
                task._heartbeat.say(state=DONE)
                try:
                    task._heartbeat.stop(1.0)
                except Exception:  # a test may leave behind any state
                    continue
        if self.monitor is not None:
            self.monitor.stop(5.0)


@pytest.fixture
def cluster(tmp_path, servers_of_test):
    made = Cluster(tmp_path, servers_of_test, TIMEOUTS)
    yield made
    made.end()


@pytest.fixture
def make_cluster(tmp_path, servers_of_test):
    """Calls of Cluster with other timeouts or with stop conditions."""
    made = []

    def make(timeouts: Timeouts = TIMEOUTS, **conditions) -> Cluster:
        made.append(Cluster(tmp_path, servers_of_test, timeouts, **conditions))
        return made[-1]

    yield make
    for cluster in made:
        cluster.end()
