"""What an actor of IMPALA does: unrolls, under whatever parameters are newest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distrl.agents.async_agent import Shipment
from distrl.agents.episode_counts import EpisodeCounts
from distrl.agents.greedy_evaluation import GreedyEvaluation
from distrl.agents.group_threads import GroupThreads
from distrl.agents.remote_policy import RemotePolicy
from distrl.agents.settings import Inference, Unrolls
from distrl.agents.stream_policies import (
    FlatSampler,
    LocalPolicy,
    SharedPolicy,
    StreamPolicy,
)
from distrl.agents.unroll_streams import Advance, UnrollStreams
from distrl.core import seeds
from distrl.core.trajectories import Trajectories
from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle.task import Task
from distrl.metrics.timers import WaitTimer
from distrl.models.impala import ImpalaModel


class ImpalaActor:
    """One actor. Its groups of environments step in turn, one inference a step each, or
    in threads, and share inferences; `Inference` says who computes them.

    The streams of a group, or of all groups in turn, end an unroll at once; unrolls go
    to the memories by turns.
    """

    def __init__(
        self,
        task: Task,
        groups: Sequence[VectorEnvironment],
        evaluation: VectorEnvironment | None,
        model: ImpalaModel,
        unrolls: Unrolls,
        inference: Inference,
    ):
        self._task = task
        self._environments = list(groups)
        spec = groups[0].spec
        self._policy = _make_policy(task, model, groups, inference)
        unrolls_spec = model.trajectories_spec(spec, unrolls.unroll_length)
        self._streams: UnrollStreams | GroupThreads
        if inference.group_threads:
            each = [UnrollStreams([g], self._policy, unrolls_spec) for g in groups]
            self._streams = GroupThreads(each, task.timeouts.stall_secs)
        else:
            self._streams = UnrollStreams(groups, self._policy, unrolls_spec)
        self._finished: list[Trajectories] = []
        self._num_memories = len(task.cluster.memory)
        self._memory = task.index % self._num_memories
        self._version, self._parameters = -1, np.zeros(0, np.uint8)
        self._evaluation = GreedyEvaluation(
            task,
            evaluation,
            lambda: FlatSampler(model, spec),
            unrolls.evaluation_period_secs,
            unrolls.evaluation_episodes,
        )
        self._counts = EpisodeCounts(task, [*groups, *self._evaluation.environments])

    def load(self, version: int, parameters: np.ndarray) -> None:
        self._version, self._parameters = version, parameters
        self._policy.load(version, parameters)
        for environment in self._environments:
            environment.load_parameters(version, parameters)
        self._task.gauges["parameter_version"] = version

    def step(self) -> None:
        self._take(self._streams.step())

    def _take(self, advance: Advance) -> None:
        if advance.finished is not None:
            self._finished.append(advance.finished)
        self._task.counters.add("env_steps", advance.env_steps)
        for info in advance.infos:
            self._counts.add(info)

    def shipments(self) -> Iterator[Shipment]:
        finished, self._finished = self._finished, []
        for unrolls in finished:
            self._counts.count_cpu()
            yield Shipment(self._memory, unrolls, len(unrolls.first_is_last))
            self._memory = (self._memory + 1) % self._num_memories

    def flush(self) -> Iterator[Shipment]:
        """Unrolls have one length: what has not reached it is counted, not shipped."""
        for advance in self._streams.finish():
            self._take(advance)
        pending = self._streams.pending_env_steps
        self._task.counters.add("unfinished_steps", pending)
        return self.shipments()

    def evaluate(self) -> None:
        """A step of an evaluation, when one is due."""
        self._evaluation.advance(self._version, self._parameters)

    def close(self) -> None:
        self._policy.close()
        self._streams.close()
        self._evaluation.close()


def _make_policy(
    task: Task,
    model: ImpalaModel,
    groups: Sequence[VectorEnvironment],
    inference: Inference,
) -> StreamPolicy:
    """What all groups act by."""
    spec = groups[0].spec
    policy: StreamPolicy
    if inference.at == "learner":
        # That of the task is for its main thread.
        timer = WaitTimer() if inference.group_threads else task.timer
        policy = RemotePolicy(task, model, spec, timer)
    else:
        sequence = seeds.seed_sequence(
            task.run.seed, "actor", task.index, restart=task.restart
        )
        policy = LocalPolicy(FlatSampler(model, spec), sequence)
    if inference.group_threads:
        policy = SharedPolicy(policy, inference, "group inference")
    return policy
