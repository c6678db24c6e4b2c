"""The environments of one actor under a stochastic policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from distrl.checkpoints.parameters import unflatten_parameters
from distrl.checkpoints.policy_sampler import PolicySampler, SampledActions
from distrl.core.core_states import CoreStates
from distrl.core.specs import Nest
from distrl.environments.vector_environment import VectorEnvironment, VectorStep


class FlatSampler(PolicySampler):
    """A sampler that takes parameters as they travel."""

    version = -1

    def load_flat(self, version: int, parameters: np.ndarray) -> None:
        """uint8 bytes. Raises ValueError when they do not fit the acting graph."""
        self.load(unflatten_parameters(parameters, self.parameter_specs))
        self.version = version


class Acted(NamedTuple):
    """What a group of n streams does in a step, and on what."""

    slots: slice  # of the actor's streams
    observation: Nest  # [n, ...]
    core_state: Nest  # [n, ...], before the step; views
    sampled: SampledActions


class PolicyStreams:
    """N streams in groups: while one group steps, the policy acts on the others.

        for acted in streams.act():
            ...                      # the step of this group is under way
        for slots, step in streams.wait():
            ...

    The states of a recurrent core go on from step to step, over rounds and parameters,
    and are cleared where an episode begins.
    """

    def __init__(
        self,
        groups: Sequence[VectorEnvironment],
        sampler: PolicySampler,
        seed: np.random.SeedSequence,
    ):
        """Resets the environments; `seed` is that of the actions."""
        self._groups, self._sampler = groups, sampler
        ends = np.cumsum([group.num_envs for group in groups])
        self.slots = [
            slice(int(end) - group.num_envs, int(end))
            for end, group in zip(ends, groups, strict=True)
        ]
        self.num_streams = int(ends[-1])
        self._random = np.random.default_rng(seed)
        self.observations = [group.reset()[0] for group in groups]
        self.states = CoreStates(sampler.core_spec, self.num_streams)
        # Which observations are the last ones of an episode.
        self.is_last = np.zeros(self.num_streams, bool)

    def act(self) -> Iterator[Acted]:
        """Starts a step of each group. The states are those before the step until the
        next one is asked for."""
        for index, group in enumerate(self._groups):
            slots, observation = self.slots[index], self.observations[index]
            pair, state = self._random.integers(0, 1 << 31, 2), self.states.of(slots)
            sampled = self._sampler.act(observation, pair, state)
            group.step_async(self._sampler.to_environment(sampled.raw_action))
            yield Acted(slots, observation, state, sampled)
            self.states.keep(sampled.core_state, slots)

    def wait(self) -> Iterator[tuple[slice, VectorStep]]:
        """Takes the steps that `act` has started, in its order."""
        ended = np.zeros(self.num_streams, bool)
        for index, group in enumerate(self._groups):
            slots, step = self.slots[index], group.step_wait()
            self.observations[index] = step.observation
            ended[slots] = step.terminated | step.truncated
            yield slots, step
        # The row behind an end still belongs to its episode, the next one does not.
        self.states.clear(self.is_last)
        self.is_last = ended & ~self.is_last

    def values(self) -> Iterator[tuple[slice, np.ndarray]]:
        """What the policy thinks of the newest observations, float32 `[n]`."""
        for slots, observation in zip(self.slots, self.observations, strict=True):
            yield slots, self._sampler.value(observation, self.states.of(slots))
