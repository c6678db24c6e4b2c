"""Whole runs in this process: one thread a task, over several servers."""

import json
import pathlib
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import gymnasium
from spare_servers import RentedServers

from distrl.agents.actor_learner_agent import ActorLearnerAgent
from distrl.agents.apex_agent import ApexAgent
from distrl.agents.ppo_agent import PPOAgent
from distrl.agents.settings import Acting, Learning, Replay, Rounds
from distrl.cluster.spec import ClusterSpec
from distrl.core.errors import RunEnding, RunFailed
from distrl.core.threads import Deadline, StoppableThread
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.vector_environment import VectorEnvironment
from distrl.learners.sync_samples import PPOSettings
from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.lifecycle.ledger import CHANNELS
from distrl.lifecycle.settings import Run, StopConditions, Timeouts
from distrl.lifecycle.signals import Signals
from distrl.lifecycle.task import Task
from distrl.memories.prioritized import PrioritizedMemory
from distrl.models.ddpg import DDPGModel
from distrl.models.dqn import DQNModel
from distrl.models.ppo import PPOModel
from distrl.networks.deterministic import critic_network, deterministic_policy_network
from distrl.networks.policy_value_network import orthogonal_mlp, policy_value_network
from distrl.networks.q_network import q_network
from distrl.networks.torsos import mlp

TIMEOUTS = Timeouts(
    startup_secs=20.0,
    heartbeat_secs=6.0,
    stall_secs=60.0,
    shutdown_secs=8.0,
    beat_period_secs=0.2,
)
NUM_ENVS = 4
POLICIES = FailurePolicies()
STRICT = FailurePolicies(actor="fail")


def cartpole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def pendulum() -> gymnasium.Env:
    return gymnasium.make("Pendulum-v1", disable_env_checker=True)


def small_dqn() -> DQNModel:
    network = partial(q_network, torso=partial(mlp, hidden_sizes=(16,)))
    return DQNModel(network, target_update_period=20)


def small_ddpg() -> DDPGModel:
    torso = partial(mlp, hidden_sizes=(16,))
    return DDPGModel(
        partial(deterministic_policy_network, torso=torso),
        partial(critic_network, torso=torso, hidden=16),
    )


def make_agent(
    environment: Callable[[], gymnasium.Env] = cartpole,
    acting: dict[str, Any] | None = None,
    back_end: Callable[..., VectorEnvironment] = SerialVectorEnvironment,
    num_groups: int = 1,
    model: DQNModel | DDPGModel | None = None,
    **replay: Any,
) -> ApexAgent:
    """Ape-X with everything small. Evaluations stay out unless they are asked for."""
    settings = {"block_length": 8, "evaluation_period_secs": 1e6}
    sizes = {
        "capacity": 2000,
        "batch_size": 16,
        "batches_per_message": 2,
        "min_size_to_sample": 64,
        "samples_per_insert": 4.0,
    }
    return ApexAgent(
        partial(back_end, environment),
        PrioritizedMemory,
        model or small_dqn(),
        NUM_ENVS,
        Acting(**(settings | (acting or {}))),
        Replay(**(sizes | replay)),
        Learning(publish_period=5),
        num_groups,
    )


def make_ppo_agent(
    environment: Callable[[], gymnasium.Env] = cartpole,
    kind: type[PPOAgent] = PPOAgent,
    minibatch_size: int = 16,
    **rounds: Any,
) -> PPOAgent:
    """PPO with everything small: 8 steps of 4 environments, and no evaluation."""
    settings = {"steps_per_round": 8, "evaluation_period_secs": 1e6}
    return kind(
        partial(SerialVectorEnvironment, environment),
        PPOModel(
            partial(
                policy_value_network, torso=partial(orthogonal_mlp, hidden_sizes=(16,))
            )
        ),
        NUM_ENVS,
        Rounds(**(settings | rounds)),
        PPOSettings(num_epochs=2, minibatch_size=minibatch_size),
    )


class Killed(BaseException):
    """Raised in a task to end it without a word, as SIGKILL would."""


class LocalRun:
    """The tasks of one run as threads, each with what its program would do."""

    def __init__(
        self,
        run_dir: pathlib.Path,
        servers: RentedServers,
        num_ps: int = 1,
        num_memories: int = 1,
        num_actors: int = 2,
        timeouts: Timeouts = TIMEOUTS,
        seed: int = 0,
        policies: FailurePolicies = POLICIES,
        **conditions: Any,
    ):
        counts = {"ps": num_ps, "memory": num_memories, "learner": 1}
        hosts = [
            tuple(servers.address(job, index) for index in range(count))
            for job, count in counts.items()
        ]
        self.cluster = ClusterSpec(*hosts, num_actors)
        self.run_dir = run_dir
        (run_dir / "metrics").mkdir(parents=True)
        self.settings = Run(seed, StopConditions(**conditions), timeouts, policies)
        self.tasks: dict[str, Task] = {}
        self.threads: dict[str, StoppableThread] = {}

    @property
    def names(self) -> list[str]:
        """Every task of the cluster."""
        counts = {
            "ps": len(self.cluster.ps),
            "memory": len(self.cluster.memory),
            "learner": 1,
            "actor": self.cluster.num_actors,
        }
        return [f"{job}/{i}" for job, count in counts.items() for i in range(count)]

    def start(
        self,
        agent: ActorLearnerAgent,
        names: Iterable[str] = (),
        restart: int = 0,
        **others: ActorLearnerAgent,
    ) -> None:
        """Starts these tasks, or all; `others` are agents of single jobs."""
        for name in names or self.names:
            job, index = name.split("/")
            task = Task(
                job,
                int(index),
                self.cluster,
                self.settings,
                self.run_dir,
                {},
                Signals(),
                restart,
            )
            work = partial(self._live, others.get(job, agent), task)
            self.tasks[name] = task
            self.threads[name] = StoppableThread(name, work).start()

    def _live(self, agent: ActorLearnerAgent, task: Task, stopping: Any) -> None:
        try:
            agent.run(task)
        except (RunEnding, RunFailed):
            raise
        except Killed:
            task.heartbeat.stop()
            raise
        except BaseException as error:
            task.fail(f"{type(error).__name__}: {error}")
            raise

    def wait_until(self, predicate: Callable[[], bool], timeout: float = 30.0) -> None:
        """Waits for it; a task that has died in the meantime fails the test."""
        deadline = Deadline(timeout)
        while not predicate():
            for thread in self.threads.values():
                thread.check()
            assert not deadline.passed, "waited in vain"
            time.sleep(0.02)

    def running(self, name: str = "actor/0") -> bool:
        task = self.tasks[name]
        return task._heartbeat is not None and task.view.phase == "running"

    def join(self, timeout: float = 30.0) -> dict[str, BaseException | None]:
        """How each task has ended: None, or what it raised."""
        deadline = Deadline(timeout)
        errors: dict[str, BaseException | None] = {}
        for name, thread in self.threads.items():
            try:
                thread.join(deadline.remaining)
                errors[name] = None
            except TimeoutError:
                if thread.alive:
                    raise
                errors[name] = thread.error
            except BaseException as error:
                errors[name] = error
        return errors

    def join_well(self, timeout: float = 30.0) -> dict[str, Any]:
        """Waits for the end of all, which must be without an error; the summary."""
        errors = self.join(timeout)
        assert not any(errors.values()), errors
        return self.summary()

    def summary(self) -> dict[str, Any]:
        return json.loads((self.run_dir / "summary.json").read_text())

    def stop_all(self) -> None:
        """Ends what a failed test has left behind, as SIGTERM would."""
        for task in self.tasks.values():
            task.signals.received = "teardown"
        for thread in self.threads.values():
            try:
                thread.join(10.0)
            except BaseException:
                continue


def check_ledger(summary: dict[str, Any]) -> None:
    """Every row that was sent has arrived, and every env step was sent."""
    channels = summary["channels"]
    for name in CHANNELS:
        counts = channels[name]
        assert counts["lost"] == counts["duplicates"] == 0, (name, counts)
        assert counts["sent"] == counts["received"], (name, counts)
    rows = summary["rows"]
    assert channels["experience"]["sent"] == summary["env_steps"]
    assert rows["inserted"] + rows["orphans"] == summary["env_steps"]
    assert rows["orphans"] == 0
    assert channels["batches"]["sent"] == rows["sampled"]
    assert channels["priorities"]["sent"] == rows["trained"]


def check_rounds(summary: dict[str, Any], stale_rows: int = 0) -> None:
    """Every env step was sent, received and, but for stale ones, trained on once."""
    channels, rows = summary["channels"], summary["rows"]
    for name in CHANNELS:
        counts = channels[name]
        assert counts["lost"] == counts["duplicates"] == 0, (name, counts)
        assert counts["sent"] == counts["received"], (name, counts)
    assert summary["rounds"]["stale_rows"] == stale_rows
    assert channels["experience"]["sent"] == summary["env_steps"]
    assert rows["inserted"] == summary["env_steps"] - stale_rows
    assert rows["inserted"] == rows["sampled"] == rows["trained"]
    assert channels["batches"]["sent"] == rows["sampled"]
    assert rows["orphans"] == rows["stale_updates"] == 0
