"""Greedy episodes that count: during the run, and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from distrl.core.specs import Nest
from distrl.environments.vector_environment import VectorEnvironment

#: From observations `[N, ...]`, and bool `[N]` which are the first of their episode, to
#: actions.
Act = Callable[[Nest, np.ndarray], Nest]


class Judged(Protocol):
    """A policy of its own, so that what is judged does not change meanwhile."""

    def load_flat(self, version: int, parameters: np.ndarray) -> None:
        """Acts under these parameters, as they travel, from now on."""

    def greedy(self, observation: Nest, began: np.ndarray) -> Nest:
        """What the environment takes, `[N, ...]`; `began`, bool `[N]`, says which
        observations are the first of their episode."""

    def close(self) -> None:
        """Frees what it holds."""


def greedy_returns(
    environment: VectorEnvironment,
    act: Act,
    num_episodes: int,
    stop: Callable[[], bool] = lambda: False,
) -> list[float] | None:
    """Undiscounted returns of `num_episodes` fresh episodes; None when stopped.

    See `greedy_steps`, which does it a step at a time.
    """
    for returns in greedy_steps(environment, act, num_episodes):
        if returns is not None:
            return returns
        if stop():
            return None
    return None


def greedy_steps(
    environment: VectorEnvironment, act: Act, num_episodes: int
) -> Iterator[list[float] | None]:
    """A vector step at a time: None, and in the end the undiscounted returns of
    `num_episodes` fresh episodes.

    Each slot plays its share, so that short episodes are not favoured.
    """
    slots = environment.num_envs
    shares = np.full(slots, num_episodes // slots)
    shares[: num_episodes % slots] += 1
    played = np.zeros(slots, np.int64)
    returns: list[float] = []
    observation, _ = environment.reset()
    began, ended = np.ones(slots, bool), np.zeros(slots, bool)
    while len(returns) < num_episodes:
        yield None
        step = environment.step(act(observation, began))
        observation = step.observation
        began, ended = ended, (step.terminated | step.truncated) & ~ended
        if "_episode_return" in step.info:
            counts = step.info["_episode_return"] & (played < shares)
            returns.extend(step.info["episode_return"][counts].tolist())
            played += step.info["_episode_return"]
    yield returns
