"""What an Ape-X actor does: act, remember, price, ship; now and then be judged."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from distrl.agents.async_agent import Shipment
from distrl.agents.behaviour import Behaviour, Decision
from distrl.agents.episode_counts import EpisodeCounts
from distrl.agents.epsilon_greedy import EpsilonGreedy
from distrl.agents.greedy_evaluation import GreedyEvaluation
from distrl.agents.noisy_policy import NoisyPolicy
from distrl.agents.settings import Acting
from distrl.checkpoints.policy import LocalPolicy
from distrl.core import seeds
from distrl.core.nests import concatenate, map_nest
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.environments.vector_environment import VectorEnvironment, VectorStep
from distrl.lifecycle.task import Task
from distrl.memories.n_step_accumulator import NStepAccumulator
from distrl.models.ddpg import DDPGModel
from distrl.models.dqn import DQNModel

log = logging.getLogger(__name__)


class _Part(NamedTuple):
    """The slots whose streams go to one memory."""

    memory: int
    slots: np.ndarray
    accumulator: NStepAccumulator


class _Group:
    """Environments that step together, and what was last decided for them."""

    def __init__(self, environment: VectorEnvironment, first: int):
        self.environment = environment
        self.slots = slice(first, first + environment.num_envs)
        self.observation, _ = environment.reset()
        self._decision: Decision | None = None
        # Which observations are the first, and which the last, of an episode.
        self._began = np.ones(environment.num_envs, np.bool_)
        self._ended = np.zeros(environment.num_envs, np.bool_)

    def decided(self, policy: Behaviour) -> Decision:
        """What was decided for the newest observation; decides it when nothing was.

        The step with those actions is under way then.
        """
        if self._decision is None:
            self._decision = policy.decide(self.observation, self.slots, self._began)
            self.environment.step_async(self._decision.action)
        return self._decision

    def wait(self) -> VectorStep:
        """The step that is under way; nothing is decided for what it shows."""
        step = self.environment.step_wait()
        self.observation, self._decision = step.observation, None
        # What a reset step says belongs to no episode.
        ended = (step.terminated | step.truncated) & ~self._ended
        self._began, self._ended = self._ended, ended
        return step


class JudgedBehaviour:
    """A behaviour policy that acts for nobody, and is judged."""

    def __init__(self, policy: Behaviour):
        self.load_flat, self.greedy, self.close = (
            policy.load,
            policy.greedy,
            policy.close,
        )


class _Current:
    """The behaviour policy, judged as it is: nobody acts meanwhile."""

    def __init__(self, policy: Behaviour):
        self.greedy = policy.greedy

    def load_flat(self, version: int, parameters: np.ndarray) -> None:
        """It has them already."""

    def close(self) -> None:
        """Its owner does that."""


class ApexActor:
    """One actor: each group of its environments steps together, one inference a step.

    While one group steps, the policy acts on the others, and what they have seen is
    accumulated and shipped.
    """

    def __init__(
        self,
        task: Task,
        environments: Sequence[VectorEnvironment],
        evaluation_environment: VectorEnvironment | None,
        model: DQNModel | DDPGModel,
        acting: Acting,
    ):
        self._task, self._acting = task, acting
        sizes = [environment.num_envs for environment in environments]
        spec, number = environments[0].spec, sum(sizes)
        total = task.cluster.num_actors * number
        first = task.index % task.cluster.num_actors * number
        place = ("actor", task.index)
        seed = seeds.seed_sequence(task.run.seed, *place, restart=task.restart)
        places = range(first, first + number)
        self._policy = make_behaviour(model, spec, acting, places, total, seed)
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
        self._parameters = np.zeros(0, np.uint8)
        firsts = [sum(sizes[:group]) for group in range(len(sizes))]
        self._groups = list(map(_Group, environments, firsts))
        self._evaluation = GreedyEvaluation(
            task,
            evaluation_environment,
            lambda: _Current(self._policy),
            acting.evaluation_period_secs,
            acting.evaluation_episodes,
        )
        self._counts = EpisodeCounts(
            task, [*environments, *self._evaluation.environments]
        )
        for name, values in self._policy.exploration.items():
            task.gauges[name] = [round(value, 6) for value in values]
            log.info("%s of the slots: %s", name, task.gauges[name])

    def load(self, version: int, parameters: np.ndarray) -> None:
        self._parameters = parameters
        self._policy.load(version, parameters)
        for group in self._groups:
            group.environment.load_parameters(version, parameters)
        self._task.gauges["parameter_version"] = version

    def step(self) -> None:
        row = _joined([self._advance(group) for group in self._groups])
        rows = sum(part.accumulator.add(*self._of(part, row)) for part in self._parts)
        self._task.counters.add("env_steps", rows)

    def _advance(self, group: _Group) -> Nest:
        """Takes one step of a group and starts the next; returns the row of the one."""
        acted_on, decision = group.observation, group.decided(self._policy)
        step = group.wait()
        group.decided(self._policy)
        self._counts.add(step.info)
        return (acted_on, *decision, *step[1:4])

    def _of(self, part: _Part, row: Nest) -> Nest:
        """What belongs to the slots of one memory, of arrays `[N, ...]`."""
        if len(self._parts) == 1:
            return row
        return map_nest(lambda array: array[part.slots], row)

    def shipments(self) -> Iterator[Shipment]:
        if self._parts[0].accumulator.ready:
            self._counts.count_cpu()
        for part in self._parts:
            if part.accumulator.ready:
                yield Shipment(part.memory, *part.accumulator.take())

    def flush(self) -> Iterator[Shipment]:
        row = _joined(
            [
                (group.observation, group.decided(self._policy).value_max)
                for group in self._groups
            ]
        )
        for part in self._parts:
            yield Shipment(part.memory, *part.accumulator.flush(*self._of(part, row)))

    def evaluate(self) -> None:
        """All of an evaluation, when one is due; acting waits for it."""
        version, parameters = self._policy.version, self._parameters
        while self._evaluation.advance(version, parameters):
            self._task.heartbeat.progress += 1
            if self._task.should_stop:
                return

    def close(self) -> None:
        self._policy.close()
        self._evaluation.close()


def make_behaviour(
    model: DQNModel | DDPGModel,
    spec: EnvironmentSpec,
    acting: Acting,
    slots: range,
    total: int,
    seed: np.random.SeedSequence,
) -> Behaviour:
    """The behaviour policy that goes with a model, for these of `total` slots.

    It follows from the model: what can explore with one cannot with the other, so a
    setting would only add a way to be wrong.
    """
    if isinstance(model, DDPGModel):
        stds = acting.noise_stds(slots.start, len(slots), total)
        return NoisyPolicy(model, spec, stds, acting.noise_correlation, seed)
    epsilons = acting.epsilons(slots.start, len(slots), total)
    return EpsilonGreedy(LocalPolicy(model, spec), spec.action, epsilons, seed)


def _joined(rows: Sequence[Nest]) -> Nest:
    """The row of all slots from those of the groups."""
    return rows[0] if len(rows) == 1 else concatenate(rows)
