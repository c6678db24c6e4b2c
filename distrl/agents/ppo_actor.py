"""What an actor of PPO does: collect rollouts under the parameters of the round."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from distrl.agents.episode_counts import EpisodeCounts
from distrl.agents.greedy_evaluation import GreedyEvaluation
from distrl.agents.policy_streams import PolicyStreams
from distrl.agents.settings import Rounds
from distrl.agents.stream_policies import FlatSampler, LocalPolicy
from distrl.core import seeds
from distrl.core.nests import map_nest
from distrl.core.records import RolloutRows, rollout_rows_spec
from distrl.core.rollouts import Shares, share_of
from distrl.core.specs import EnvironmentSpec, Nest, leaves
from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle.task import Task
from distrl.losses.returns import step_mask
from distrl.models.ppo import PPOModel

_SLOTS = 4096  # environments of a run, in the numbers of their streams


class PPOActor:
    """One actor: its groups of environments step in turn, one inference a step each."""

    def __init__(
        self,
        task: Task,
        groups: Sequence[VectorEnvironment],
        evaluation: VectorEnvironment | None,
        model: PPOModel,
        rounds: Rounds,
    ):
        self._task, self._rounds = task, rounds
        self._environments = list(groups)
        self._spec: EnvironmentSpec = groups[0].spec
        self._sampler = FlatSampler(model, self._spec)
        place = ("actor", task.index)
        sequence = seeds.seed_sequence(task.run.seed, *place, restart=task.restart)
        self._streams = PolicyStreams(groups, LocalPolicy(self._sampler, sequence))
        self._names = stream_numbers(task, self._streams.num_streams)
        self._unroll_length = model.core.unroll_length if model.core else 1
        self._parameters = np.zeros(0, np.uint8)
        self._evaluation = GreedyEvaluation(
            task,
            evaluation,
            lambda: FlatSampler(model, self._spec),
            rounds.evaluation_period_secs,
            rounds.evaluation_episodes,
        )
        self._counts = EpisodeCounts(task, [*groups, *self._evaluation.environments])

    def load(self, version: int, parameters: np.ndarray) -> None:
        self._parameters = parameters
        self._sampler.load_flat(version, parameters)
        for environment in self._environments:
            environment.load_parameters(version, parameters)
        self._task.gauges["parameter_version"] = version

    def collect(self) -> tuple[Shares, int] | None:
        began = time.monotonic()
        steps = self._rounds.steps_per_round
        rollout = self._new_rollout(steps)
        for step in range(steps):
            if self._task.signals.received:
                return None
            self._task.heartbeat.progress += 1
            self._step(rollout, step)
        self._see(rollout, steps)
        for slots, observation in self._streams.newest():
            state = self._streams.states.of(slots)
            rollout.value[steps, slots] = self._sampler.value(observation, state)
        mask = step_mask(rollout.terminated, rollout.truncated, rollout.first_is_last)
        rows = int(np.count_nonzero(mask))
        self._counts.count_cpu()
        secs = time.monotonic() - began
        return share_of(self._task.index, rollout, rows, secs), rows

    def _step(self, rollout: RolloutRows, step: int) -> None:
        """Steps all environments once; fills row `step`."""
        self._see(rollout, step)
        unroll, within = divmod(step, self._unroll_length)
        if not within:
            _fill(rollout.core_state, unroll, slice(None), self._streams.states.now)
        for slots, _, _, (sampled, _) in self._streams.act():
            _fill(rollout.raw_action, step, slots, sampled.raw_action)
            rollout.behaviour_log_prob[step, slots] = sampled.log_prob
            rollout.value[step, slots] = sampled.value
        for slots, stepped in self._streams.wait():
            rollout.reward[step, slots] = stepped.reward
            rollout.terminated[step, slots] = stepped.terminated
            rollout.truncated[step, slots] = stepped.truncated
            self._counts.add(stepped.info)

    def _see(self, rollout: RolloutRows, step: int) -> None:
        for slots, observation in self._streams.newest():
            _fill(rollout.observation, step, slots, observation)

    def _new_rollout(self, steps: int) -> RolloutRows:
        """Arrays to be filled: they are shipped, so new ones for each round."""
        core_spec = self._sampler.core_spec
        spec = rollout_rows_spec(self._spec, self._sampler.raw_spec, core_spec)
        number = self._streams.num_streams
        unrolls = steps // self._unroll_length
        longer = map_nest(lambda leaf: leaf.zeros(steps + 1, number), spec)
        states = map_nest(lambda leaf: leaf.zeros(unrolls, number), core_spec)
        rollout: RolloutRows = map_nest(lambda leaf: leaf.zeros(steps, number), spec)
        return rollout._replace(
            observation=longer.observation,
            value=longer.value,
            core_state=states,
            first_is_last=self._streams.is_last,
            stream=self._names,
        )

    def idle(self) -> bool:
        return self._evaluation.advance(self._sampler.version, self._parameters)

    def close(self) -> None:
        self._sampler.close()
        self._evaluation.close()


def stream_numbers(task: Task, num_envs: int) -> np.ndarray:
    """Names for a task's streams, int64 `[num_envs]`; restarted, it has others."""
    slots = np.arange(num_envs, dtype=np.int64) + task.index * num_envs
    return task.producer.incarnation // 1000 * _SLOTS + slots % _SLOTS


def _fill(buffers: Nest, step: int, slots: slice, values: Nest) -> None:
    for buffer, value in zip(leaves(buffers), leaves(values), strict=True):
        buffer[step, slots] = value
