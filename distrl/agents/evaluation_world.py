"""Numbered greedy episodes, the same for any number of worker processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from distrl.agents.evaluation import Act
from distrl.core.specs import Nest
from distrl.environments.vector_environment import VectorEnvironment, VectorStep
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.participant import Participant
from distrl.worlds.reducers import Report, Series, Sum
from distrl.worlds.world import World, shut_all

MAX_SLOTS = 16


class EvaluationWorld(World):
    """A policy in the slots of a vector environment; a parley is a step of all slots.

    Each episode of the index is played once, in whatever slot is free, from a reset
    with a seed of its own. Loss of a life, where it ends an episode for learners, does
    not end one here. Metrics: "returns", undiscounted, of the raw rewards, by the
    number of the episode, and "env_steps".

    The environment has to take a seed for each slot, and resets of some slots; where
    all slots share one random stream, other episodes are played with other numbers of
    slots.
    """

    def __init__(
        self,
        environment: VectorEnvironment,
        act: Act,
        index: ExampleIndex,
        seeds: Sequence[int],
        close_policy: Callable[[], None] = lambda: None,
    ):
        """Takes environment and policy over, and closes them; `seeds` are those of the
        episodes."""
        self._environment, self._act = environment, act
        self._close_policy = close_policy
        self._index, self._seeds = index, list(seeds)
        super().__init__([Participant("policy")], "evaluation")

    def _clear(self) -> None:
        super()._clear()
        slots = self._environment.num_envs
        self._numbers = np.full(slots, -1)  # of the episodes under way
        self._began, self._ended = np.zeros((2, slots), bool)
        self._observation: Nest = None  # None: before the first reset

    def indices(self) -> Mapping[str, ExampleIndex]:
        return {self.name: self._index}

    @property
    def num_episodes(self) -> int | None:
        return self._index.settings.size

    @property
    def episode_done(self) -> bool:
        raise NotImplementedError("each slot has episodes of its own")

    @property
    def epoch_done(self) -> bool:
        return not (self._numbers >= 0).any() and not self._index.available

    def parley(self) -> bool:
        self._check_open()
        self._begin_episodes()
        playing = self._numbers >= 0
        if not playing.any():
            return False
        actions = self._act(self._observation, self._began)
        step = self._environment.step(actions)
        self._observation = step.observation
        ended = (step.terminated | step.truncated) & ~self._ended
        # The first observation after a life was lost is that of a reset step.
        self._began, self._ended = self._ended, ended
        self.participants[0].metrics.add("env_steps", Sum(int(playing.sum())))
        self._finish_episodes(step)
        self._steps += 1
        return True

    def _begin_episodes(self) -> None:
        """Resets the free slots that an episode is found for."""
        begins = np.zeros(self._environment.num_envs, bool)
        for slot in np.flatnonzero(self._numbers < 0).tolist():
            number = self._index.take()
            if number is None:
                break
            self._numbers[slot], begins[slot] = number, True
        if not begins.any():
            return
        seeds = [
            self._seeds[number] if begin else None
            for number, begin in zip(self._numbers, begins, strict=True)
        ]
        options = {"reset_mask": begins}
        if self._observation is None:
            seeds, options = [0 if seed is None else seed for seed in seeds], {}
        self._observation, _ = self._environment.reset(seeds, options)
        self._began |= begins
        self._ended &= ~begins

    def _finish_episodes(self, step: VectorStep) -> None:
        finished = step.info.get("_episode_return")
        if finished is None:
            return
        for slot in np.flatnonzero(finished & (self._numbers >= 0)).tolist():
            number = int(self._numbers[slot])
            reached = float(step.info["episode_return"][slot])
            self.participants[0].metrics.add("returns", Series(((number, reached),)))
            self._index.finish(number)
            self._numbers[slot] = -1
            self._episodes += 1

    def reset(self) -> None:
        self._index.reset()
        super().reset()

    def shutdown(self) -> None:
        if not self._closed:
            shut_all([self._environment.close, self._close_policy])
        super().shutdown()


def returns_of(report: Report) -> list[float]:
    """The return of each episode, in the order of their numbers."""
    return [reached for _, reached in sorted(cast(Series, report["returns"]).entries)]


def num_slots(num_episodes: int, num_workers: int) -> int:
    """Slots of each worker: enough to act in batches, few enough that not many are
    idle while the last episodes are played."""
    return max(1, min(MAX_SLOTS, -(-num_episodes // (4 * num_workers))))
