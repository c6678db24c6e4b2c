"""A policy as a participant, whatever it is computed with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from distrl.core.nests import map_nest
from distrl.core.specs import Nest
from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant


class Policy(Protocol):
    """What is needed of a policy: a model in this process, or an export."""

    core_spec: Nest  # of what it remembers of a row, () for nothing

    def step(self, observation: Nest, core_state: Nest) -> tuple[Nest, Nest]:
        """Actions `[N, ...]`, and states behind the step, of observations `[N, ...]`
        and the states before it (zeros where an episode begins)."""

    def close(self) -> None:
        """Frees what it holds. May be called again."""


class PolicyParticipant(Participant):
    """Acts by a policy on the "observation" of what it observed last, once for all rows
    of a batch.

    The same one may sit in several seats, unless its policy has a memory: then each
    seat needs a participant of its own, which may share the policy.
    """

    def __init__(self, policy: Policy, name: str = "policy"):
        super().__init__(name)
        self._policy = policy
        self._states: dict[int, Nest] = {}  # by row
        self._is_copy = False

    def act(self) -> Message:
        return self.batch_act([self.observation])[0]

    def batch_act(self, messages: Sequence[Message]) -> list[Message]:
        """An act for each message, {} for one without an observation."""
        rows = [n for n, message in enumerate(messages) if "observation" in message]
        acts: list[Message] = [{} for _ in messages]
        if not rows:
            return acts
        observation = _stacked([messages[row]["observation"] for row in rows])
        states = [self._state(row, messages[row]) for row in rows]
        state = _stacked(states) if self._policy.core_spec != () else ()
        actions, state = self._policy.step(observation, state)
        for place, row in enumerate(rows):
            acts[row] = {"action": _row(actions, place)}
            if self._policy.core_spec != ():
                self._states[row] = _row(state, place)
        return acts

    def _state(self, row: int, message: Message) -> Nest:
        if row not in self._states or "episode" in message:
            self._states[row] = map_nest(
                lambda leaf: leaf.zeros(), self._policy.core_spec
            )
        return self._states[row]

    def share(self, row: int) -> PolicyParticipant:
        shared = copy.copy(self)
        shared.observation, shared._states, shared._is_copy = {}, {}, True
        return shared

    def reset(self) -> None:
        super().reset()
        self._states = {}

    def shutdown(self) -> None:
        if not self._is_copy:
            self._policy.close()


def _stacked(nests: Sequence[Nest]) -> Nest:
    return map_nest(lambda *arrays: np.stack(arrays), *nests)


def _row(nest: Nest, number: int) -> Nest:
    return map_nest(lambda array: array[number], nest)
