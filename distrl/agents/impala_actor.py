"""What an actor of IMPALA does: unrolls, under whatever parameters are newest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distrl.agents.async_agent import Shipment
from distrl.agents.episode_counts import EpisodeCounts
from distrl.agents.greedy_evaluation import GreedyEvaluation
from distrl.agents.policy_streams import FlatSampler
from distrl.agents.settings import Unrolls
from distrl.agents.unroll_streams import UnrollStreams
from distrl.core import seeds
from distrl.core.trajectories import Trajectories
from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle.task import Task
from distrl.models.impala import ImpalaModel


class ImpalaActor:
    """One actor: its groups of environments step in turn, one inference a step each.

    All its streams end an unroll at once; the unrolls go to the memories by turns.
    """

    def __init__(
        self,
        task: Task,
        groups: Sequence[VectorEnvironment],
        evaluation: VectorEnvironment | None,
        model: ImpalaModel,
        unrolls: Unrolls,
    ):
        self._task = task
        spec = groups[0].spec
        self._sampler = FlatSampler(model, spec)
        sequence = seeds.seed_sequence(task.run.seed, "actor", task.index)
        self._streams = UnrollStreams(
            groups,
            self._sampler,
            model.trajectories_spec(spec, unrolls.unroll_length),
            sequence,
        )
        self._finished: Trajectories | None = None
        self._num_memories = len(task.cluster.memory)
        self._memory = task.index % self._num_memories
        self._parameters = np.zeros(0, np.uint8)
        self._evaluation = GreedyEvaluation(
            task,
            evaluation,
            lambda: FlatSampler(model, spec),
            unrolls.evaluation_period_secs,
            unrolls.evaluation_episodes,
        )
        self._counts = EpisodeCounts(task, [*groups, *self._evaluation.environments])

    def load(self, version: int, parameters: np.ndarray) -> None:
        self._parameters = parameters
        self._sampler.load_flat(version, parameters)
        self._task.gauges["parameter_version"] = version

    def step(self) -> None:
        self._finished, env_steps, infos = self._streams.step(self._sampler.version)
        for info in infos:
            self._counts.add(info)
        self._task.counters.add("env_steps", env_steps)

    def shipments(self) -> Iterator[Shipment]:
        finished, self._finished = self._finished, None
        if finished is not None:
            self._counts.count_cpu()
            yield Shipment(self._memory, finished, len(finished.first_is_last))
            self._memory = (self._memory + 1) % self._num_memories

    def flush(self) -> Iterator[Shipment]:
        """Unrolls have one length: what has not reached it is counted, not shipped."""
        pending = self._streams.pending_env_steps
        self._task.counters.add("unfinished_steps", pending)
        return self.shipments()

    def evaluate(self) -> None:
        """A step of an evaluation, when one is due."""
        self._evaluation.advance(self._sampler.version, self._parameters)

    def close(self) -> None:
        self._sampler.close()
        self._evaluation.close()
