"""What all agents of actors, memories, learners and parameter servers share."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from distrl.agents.evaluation import Judged
from distrl.agents.evaluation_world import num_slots
from distrl.agents.evaluator import Evaluator
from distrl.checkpoints.policy import GreedyModel, GreedyPolicy
from distrl.cluster.channel import Address
from distrl.cluster.parameter_store import ParameterStore
from distrl.cluster.parameter_threads import ParameterPuller
from distrl.core import specs
from distrl.core.errors import ConfigError, RunFailed
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import EnvironmentSpec
from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle import run_state
from distrl.lifecycle.round_board import RoundBoard, RoundReader
from distrl.lifecycle.run_state import RunState
from distrl.lifecycle.run_status import RunReporter
from distrl.lifecycle.stop_monitor import StopMonitor
from distrl.lifecycle.task import Task

if TYPE_CHECKING:  # it needs what is below
    from distrl.agents.learner_loop import LearnerLoop

IDLE_SECS = 0.2  # the longest wait for news; what matters sets the wakeup
_EVALUATORS = 2  # the first place in the random streams that nobody else has
_EVALUATOR_PULL_SECS = 1.0

#: Makes a vector environment: called with num_envs and seeds (EnvironmentSeeds).
EnvironmentFactory = Callable[..., VectorEnvironment]


class ActorLearnerAgent(abc.ABC):
    """An algorithm, spread over the jobs of a run.

        agent = ApexAgent(...)
        agent.run(task)      # the same call in every process; returns when the run ends

    A subclass says what each job does. What a job's method raises ends the run.
    """

    model: GreedyModel

    def __init__(
        self, environment_factory: EnvironmentFactory, num_envs: int, num_groups: int
    ):
        if not 1 <= num_groups <= num_envs:
            raise ConfigError(
                f"num_envs {num_envs} and num_groups {num_groups}: expected at least "
                "one environment in each group, and one group"
            )
        self.num_envs, self.num_groups = num_envs, num_groups
        self._environment_factory = environment_factory

    def run(self, task: Task) -> None:
        """Does the job of `task` until the run ends. Raises RunFailed when the run
        ended because of a failure elsewhere."""
        jobs = {
            "ps": self.run_ps,
            "memory": self.run_memory,
            "learner": self.run_learner,
            "actor": self.run_actor,
            "evaluator": self.run_evaluator,
        }
        jobs[task.job](task)

    @abc.abstractmethod
    def run_memory(self, task: Task) -> None:
        """Takes in experience and serves batches."""

    @abc.abstractmethod
    def make_learner(self, task: Task, spec: EnvironmentSpec) -> LearnerLoop:
        """Called before the task joins."""

    @abc.abstractmethod
    def check(self, spec: EnvironmentSpec, task: Task) -> None:
        """Raises ConfigError or ValueError for settings that cannot work."""

    def run_learner(self, task: Task) -> None:
        """Trains, publishes parameters, keeps checkpoints."""
        spec = self.environment_spec()
        self.check(spec, task)
        loop = self.make_learner(task, spec)
        loop.join(specs.describe(spec))
        while not task.should_stop:
            task.heartbeat.progress += 1
            loop.look_after_servers()
            loop.step(IDLE_SECS)
        loop.finish()
        leave(task)

    @abc.abstractmethod
    def run_actor(self, task: Task) -> None:
        """Steps environments and ships experience."""

    @property
    @abc.abstractmethod
    def evaluation_episodes(self) -> int:
        """How many greedy episodes judge a version of the parameters."""

    @abc.abstractmethod
    def make_judged(self, spec: EnvironmentSpec) -> Judged:
        """The greedy policy, under parameters as they travel."""

    def run_evaluator(self, task: Task) -> None:
        """Judges what is published; comes and goes as it likes."""
        number = self.evaluation_episodes
        place = (task.run.seed, "evaluation", _EVALUATORS + task.index)
        with self.make_environment(*place, num_slots(number, 1)) as environment:
            spec = environment.spec
            self.check(spec, task)
            task.join(specs.describe(spec))
            seeds = EnvironmentSeeds(*place)
            evaluator = Evaluator(
                task,
                environment,
                self.make_judged(spec),
                [seeds.of(episode) for episode in range(number)],
            )
            puller = ParameterPuller(
                parameter_store(task), _EVALUATOR_PULL_SECS, task.patience_secs
            )
            newest = None
            try:
                while not task.should_stop:
                    task.heartbeat.progress += 1
                    newest = puller.newest() or newest
                    if not evaluator.advance(newest):
                        puller.wait(IDLE_SECS)
            finally:
                evaluator.close()
            puller.stop(5.0)
        leave(task)

    def environment_spec(self) -> EnvironmentSpec:
        """What the environment shows and takes; makes one and closes it."""
        with self._environment_factory(num_envs=1, seeds=None) as environment:
            return environment.spec

    def make_environment(
        self, seed: int, job: str, task: int, num_envs: int, restart: int = 0
    ) -> VectorEnvironment:
        """Environments of one task, each with a random stream of its own; `restart`
        counts the starts of the task before this one."""
        own_seeds = EnvironmentSeeds(seed, job, task, restart=restart)
        return self._environment_factory(num_envs=num_envs, seeds=own_seeds)

    def make_groups(
        self, seed: int, task: int, restart: int = 0
    ) -> list[VectorEnvironment]:
        """The environments of one actor, in groups that step in turn; `restart` counts
        its starts before this one, so that it does not play the same episodes again."""
        share, rest = divmod(self.num_envs, self.num_groups)
        groups: list[VectorEnvironment] = []
        first = 0
        try:
            for group in range(self.num_groups):
                number = share + (group < rest)
                own_seeds = EnvironmentSeeds(seed, "actor", task, first, restart)
                made = self._environment_factory(num_envs=number, seeds=own_seeds)
                groups.append(made)
                first += number
        except BaseException:
            for made in groups:
                made.close()
            raise
        return groups

    def make_evaluation(self, task: Task) -> VectorEnvironment | None:
        """Where actor 0 is judged, an environment an episode; None for the others."""
        if task.index > 0:
            return None
        place = (task.run.seed, "evaluation", 0)
        number = self.evaluation_episodes
        return self.make_environment(*place, number, task.restart)

    def make_policy(
        self, spec: EnvironmentSpec, parameters: Mapping[str, np.ndarray]
    ) -> GreedyPolicy:
        """The greedy policy of a checkpoint's arrays."""
        return GreedyPolicy(self.model, spec, parameters)

    def run_ps(self, task: Task) -> None:
        """Holds parameters; ps 0 also keeps the run state. The last to leave."""
        if task.index > 0:
            task.join({})
            while not task.heartbeat.wait_for(
                lambda: task.view.phase == run_state.FINISHED, timeout=60.0
            ):
                task.heartbeat.progress += 1
            leave(task)
            return
        conditions = task.run.stop
        state = RunState(
            task.cluster,
            task.config,
            conditions,
            task.timeouts,
            time.monotonic(),
            task.run.failures,
        )
        reporter = RunReporter(task.run_dir, conditions)
        monitor = StopMonitor(
            state,
            task.address("ps", 0),
            task.target,
            task.producer.incarnation,
            reporter,
            task.totals,
            task.signals,
        )
        try:
            while not monitor.wait(timeout=60.0):
                pass
        finally:
            monitor.stop(5.0)
            reporter.close()
        if monitor.stop_reason.startswith(run_state.FAILURE):
            raise RunFailed(monitor.stop_reason)


def parameter_store(task: Task, name: str = "parameters") -> ParameterStore:
    """One named set of parameters of this run, on all of its ps."""
    addresses: list[Address] = task.addresses("ps")
    run = int(task.view.run_id, 16)
    return ParameterStore(f"{name}/{task.view.run_id}", addresses, run)


def round_board(task: Task, store: ParameterStore) -> RoundBoard:
    """Where the rounds of this run are planned, beside the parameters of `store`."""
    return RoundBoard(task.view.run_id, task.address("ps", 0), store.name)


def round_reader(task: Task) -> RoundReader:
    """Where a task sees what was planned for it."""
    return RoundReader(task.view.run_id, task.address("ps", 0), str(task.producer))


def leave(task: Task) -> None:
    """The last thing a task does. Raises RunFailed when the run has failed."""
    failed, reason = task.view.failed, task.view.stop_reason
    task.leave()
    if failed:
        raise RunFailed(reason)
