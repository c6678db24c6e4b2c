"""Unrolls of environments under a stochastic policy, for actors and for workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from distrl.agents.policy_streams import PolicyStreams
from distrl.agents.stream_policies import FlatSampler, LocalPolicy, StreamPolicy
from distrl.core.trajectories import Trajectories
from distrl.environments.vector_environment import VectorEnvironment
from distrl.memories.unroll_accumulator import UnrollAccumulator
from distrl.models.impala import ImpalaModel


class Advance(NamedTuple):
    """What one step of all environments gave."""

    finished: Trajectories | None  # an unroll of each stream, when they have ended
    env_steps: int
    infos: list[dict[str, Any]]  # of the groups


class UnrollStreams:
    """N streams in groups, and the unrolls that they become; all end theirs at once."""

    def __init__(
        self,
        groups: Sequence[VectorEnvironment],
        policy: StreamPolicy,
        unrolls: Trajectories,
    ):
        """`unrolls` is their spec."""
        self._streams = PolicyStreams(groups, policy)
        self._accumulator = UnrollAccumulator(unrolls, self._streams.num_streams)

    @property
    def pending_env_steps(self) -> int:
        """Environment steps whose unrolls have not ended."""
        return self._accumulator.pending_env_steps

    def step(self) -> Advance:
        """Steps all environments once."""
        accumulator, finished, env_steps, infos = self._accumulator, None, 0, []
        for slots, observation, state, (sampled, version) in self._streams.act():
            ended = accumulator.begin(
                observation,
                sampled.raw_action,
                sampled.behaviour,
                version,
                state,
                slots,
            )
            if ended is not None:
                finished = ended[0]
        for slots, step in self._streams.wait():
            reward = step.reward.astype(np.float32, copy=False)
            env_steps += accumulator.end(reward, step.terminated, step.truncated, slots)
            infos.append(step.info)
        return Advance(finished, env_steps, infos)

    def finish(self) -> Iterator[Advance]:
        """What has not been taken: nothing, since nothing happens between steps."""
        return iter(())

    def close(self) -> None:
        """There is nothing to end."""


class UnrollSource:
    """Samples unrolls: a `Source` of the asynchronous samples optimizer.

        make_source = partial(UnrollSource, make_environment, model, 20, seed)
        workers = [ThreadWorker(make_source, "worker 0")]

    A fragment has an unroll of each of the environments.
    """

    def __init__(
        self,
        make_environment: Callable[[], VectorEnvironment],
        model: ImpalaModel,
        unroll_length: int,
        seed: int,
    ):
        """`seed` is that of the actions; the environments have their own."""
        self._environment = environment = make_environment()
        self._sampler = FlatSampler(model, environment.spec)
        self._streams = UnrollStreams(
            [environment],
            LocalPolicy(self._sampler, np.random.SeedSequence(seed)),
            model.trajectories_spec(environment.spec, unroll_length),
        )

    def set_parameters(self, version: int, parameters: Sequence[np.ndarray]) -> None:
        """Acts under these, in the order of `ImpalaSession.parameters`."""
        self._sampler.load_version(version, parameters)

    def sample(self) -> Trajectories:
        """The next unroll of each environment."""
        while True:
            finished = self._streams.step().finished
            if finished is not None:
                return finished

    def close(self) -> None:
        """Ends environments and session."""
        self._sampler.close()
        self._environment.close()
