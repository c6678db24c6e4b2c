"""What an Ape-X actor does: act, remember, price, ship; now and then be judged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distrl.agents.actor_learner_agent import parameter_store
from distrl.agents.async_agent import Shipment
from distrl.agents.epsilon_greedy import Decision, EpsilonGreedy
from distrl.agents.evaluation import greedy_returns
from distrl.agents.learner_loop import BEST
from distrl.agents.settings import Acting
from distrl.checkpoints.policy import LocalPolicy
from distrl.cluster.parameter_store import ParameterStore
from distrl.core import seeds
from distrl.core.nests import map_nest
from distrl.core.specs import Nest
from distrl.core.threads import Deadline
from distrl.environments.vector_environment import VectorEnvironment, VectorStep
from distrl.lifecycle.task import Task
from distrl.memories.n_step_accumulator import NStepAccumulator
from distrl.metrics.episode_statistics import EpisodeStatistics
from distrl.models.dqn import DQNModel

log = logging.getLogger(__name__)


class _Part(NamedTuple):
    """The slots whose streams go to one memory."""

    memory: int
    slots: np.ndarray
    accumulator: NStepAccumulator


class ApexActor:
    """One actor: all its environments step together, one inference a step."""

    def __init__(
        self,
        task: Task,
        environment: VectorEnvironment,
        evaluation_environment: VectorEnvironment | None,
        model: DQNModel,
        acting: Acting,
    ):
        self._task, self._environment, self._acting = task, environment, acting
        spec, number = environment.spec, environment.num_envs
        total = task.cluster.num_actors * number
        first = task.index % task.cluster.num_actors * number
        epsilons = acting.epsilons(first, number, total)
        self._policy = EpsilonGreedy(
            LocalPolicy(model, spec),
            spec.action,
            epsilons,
            seeds.seed_sequence(task.run.seed, "actor", task.index),
        )
        memories = len(task.cluster.memory)
        owners = (np.arange(number) + task.index) % memories
        self._parts = [
            _Part(
                int(memory),
                slots := np.flatnonzero(owners == memory),
                NStepAccumulator(
                    spec,
                    slots.size,
                    acting.n_step,
                    acting.discount,
                    acting.block_length,
                ),
            )
            for memory in np.unique(owners)
        ]
        self._statistics = EpisodeStatistics()
        self._evaluation = evaluation_environment
        self._next_evaluation = Deadline(acting.evaluation_period_secs)
        self._best: ParameterStore | None = None
        self._best_return = -np.inf
        self._parameters = np.zeros(0, np.uint8)
        self._observation = environment.reset()
        task.gauges["epsilons"] = [round(e, 6) for e in epsilons]
        log.info("epsilons of the slots: %s", task.gauges["epsilons"])

    def load(self, version: int, parameters: np.ndarray) -> None:
        self._parameters = parameters
        self._policy.load(version, parameters)
        self._task.gauges["parameter_version"] = version

    def step(self) -> None:
        decision = self._policy.decide(self._observation)
        step = self._environment.step(decision.action)
        rows = self._remember(self._observation, decision, step)
        self._observation = step.observation
        self._task.counters.add("env_steps", rows)
        if step.info:
            self._count_episodes(step)

    def _remember(self, observation: Nest, decision: Decision, step: VectorStep) -> int:
        row = (observation, *decision, *step[1:4])
        return sum(part.accumulator.add(*self._of(part, row)) for part in self._parts)

    def _of(self, part: _Part, row: Nest) -> Nest:
        """What belongs to the slots of one memory, of arrays `[N, ...]`."""
        if len(self._parts) == 1:
            return row
        return map_nest(lambda array: array[part.slots], row)

    def _count_episodes(self, step: VectorStep) -> None:
        ended = step.info["_episode_return"]
        returns = step.info["episode_return"][ended]
        self._statistics.add(returns, step.info["episode_length"][ended])
        self._task.counters.add("episodes", returns.size)
        self._task.gauges["mean_return"] = self._statistics.mean_return
        self._task.gauges["mean_length"] = self._statistics.mean_length

    def shipments(self) -> Iterator[Shipment]:
        for part in self._parts:
            if part.accumulator.ready:
                yield Shipment(part.memory, *part.accumulator.take())

    def flush(self) -> Iterator[Shipment]:
        row = (self._observation, self._policy.decide(self._observation).value_max)
        for part in self._parts:
            yield Shipment(part.memory, *part.accumulator.flush(*self._of(part, row)))

    def evaluate(self) -> None:
        """Greedy episodes of the parameters of this moment. The best parameters so
        far are left on the ps, where learner 0 finds them."""
        if self._evaluation is None or not self._next_evaluation.passed:
            return
        version, parameters = self._policy.version, self._parameters
        returns = greedy_returns(
            self._evaluation,
            self._policy.greedy,
            self._acting.evaluation_episodes,
            self._stop_evaluating,
        )
        self._next_evaluation = Deadline(self._acting.evaluation_period_secs)
        if returns is None:
            return
        reached = float(np.mean(returns))
        log.info("evaluation of version %d: %.2f", version, reached)
        gauges = {"evaluation_return": reached, "evaluation_version": version}
        if reached >= self._best_return:
            self._best = self._best or parameter_store(self._task, BEST)
            self._best.write(version, parameters)
            self._best_return = reached
            gauges |= {"best_return": reached, "best_version": version}
        self._task.gauges |= gauges

    def _stop_evaluating(self) -> bool:
        self._task.heartbeat.progress += 1
        return self._task.should_stop

    def close(self) -> None:
        self._policy.close()
        if self._evaluation is not None:
            self._evaluation.close()
        if self._best is not None:
            self._best.close()
