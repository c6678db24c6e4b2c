"""The environments of one actor under a stochastic policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from distrl.agents.stream_policies import Decision, StreamPolicy
from distrl.core.core_states import CoreStates
from distrl.core.specs import Nest
from distrl.environments.vector_environment import VectorEnvironment, VectorStep


class Acted(NamedTuple):
    """What a group of n streams does in a step, and on what."""

    slots: slice  # of the actor's streams
    observation: Nest  # [n, ...]
    core_state: Nest  # [n, ...], before the step; views
    decision: Decision


class PolicyStreams:
    """N streams in groups: while one group steps, the policy acts on the others.

        for acted in streams.act():
            ...                      # the step of this group is under way
        for slots, step in streams.wait():
            ...

    The states of a recurrent core go on from step to step, over rounds and parameters,
    and are cleared where an episode begins.
    """

    def __init__(self, groups: Sequence[VectorEnvironment], policy: StreamPolicy):
        """Resets the environments."""
        self._groups, self._policy = groups, policy
        ends = np.cumsum([group.num_envs for group in groups])
        self.slots = [
            slice(int(end) - group.num_envs, int(end))
            for end, group in zip(ends, groups, strict=True)
        ]
        self.num_streams = int(ends[-1])
        self._observations = [group.reset()[0] for group in groups]
        self.states = CoreStates(policy.core_spec, self.num_streams)
        # Which observations are the last ones of an episode.
        self.is_last = np.zeros(self.num_streams, bool)

    def act(self) -> Iterator[Acted]:
        """Starts a step of each group. The states are those before the step until the
        next one is asked for."""
        for index, group in enumerate(self._groups):
            slots, observation = self.slots[index], self._observations[index]
            state = self.states.of(slots)
            decision = self._policy.act(observation, state)
            sampled = decision.sampled
            group.step_async(self._policy.to_environment(sampled.raw_action))
            yield Acted(slots, observation, state, decision)
            self.states.keep(sampled.core_state, slots)

    def wait(self) -> Iterator[tuple[slice, VectorStep]]:
        """Takes the steps that `act` has started, in its order."""
        ended = np.zeros(self.num_streams, bool)
        for index, group in enumerate(self._groups):
            slots, step = self.slots[index], group.step_wait()
            self._observations[index] = step.observation
            ended[slots] = step.terminated | step.truncated
            yield slots, step
        # The row behind an end still belongs to its episode, the next one does not.
        self.states.clear(self.is_last)
        self.is_last = ended & ~self.is_last

    def newest(self) -> Iterator[tuple[slice, Nest]]:
        """The observations of each group that are acted on next."""
        yield from zip(self.slots, self._observations, strict=True)
