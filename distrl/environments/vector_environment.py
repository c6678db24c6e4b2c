"""The interface of all vector environments, and the statistics that they share."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from distrl.core.specs import EnvironmentSpec, Nest


class VectorStep(NamedTuple):
    """What N environments did in one step."""

    observation: Nest  # [N, ...]
    reward: np.ndarray  # float32 [N]
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N], only terminated zeroes the discount
    info: dict[str, np.ndarray]


class VectorEnvironment(abc.ABC):
    """N environments that step together, resetting by themselves (NEXT_STEP).

        with SerialVectorEnvironment(factory, num_envs=32, seeds=seeds) as environment:
            observation = environment.reset()
            resetting = np.zeros(environment.num_envs, bool)
            while not should_stop():
                step = environment.step(policy(observation))
                record(observation, step, masked=resetting)
                observation = step.observation
                resetting = step.terminated | step.truncated

    The observation of a step in which an episode ended is the last one of that episode.
    The next step ignores that slot's action: it shows the first observation of the next
    episode with reward 0 and both flags False.

    `info` is empty but in steps in which real episodes ended. Then it has
    `episode_return` float64 [N], the undiscounted sum of the raw rewards, and
    `episode_length` int64 [N], both valid where `_episode_return` bool [N] is True.
    Loss of a life or clipped rewards do not show in them.

    Arrays that were returned are never written again.
    """

    num_envs: int
    spec: EnvironmentSpec  # of one environment

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int] | None = None) -> Nest:
        """First observations, `[N, ...]`; new random streams where seeds are given.

        Raises ValueError unless there is one seed an environment.
        """

    @abc.abstractmethod
    def step(self, actions: Nest) -> VectorStep:
        """Steps each environment; `actions` is a nest of `[N, ...]` arrays."""

    @abc.abstractmethod
    def close(self) -> None:
        """Frees what the environments hold. May be called again."""

    def __enter__(self) -> VectorEnvironment:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


class EpisodeTotals:
    """Return and length of the running episode of each slot."""

    def __init__(self, num_envs: int):
        self.returns = np.zeros(num_envs, np.float64)
        self.lengths = np.zeros(num_envs, np.int64)

    def reset(self) -> None:
        """All slots begin anew."""
        self.returns.fill(0.0)
        self.lengths.fill(0)

    def add(self, rewards: np.ndarray, resetting: np.ndarray) -> None:
        """Counts a step of each slot but those of `resetting` (bool [N])."""
        self.returns += rewards
        self.lengths += ~resetting

    def finish(self, ended: np.ndarray) -> dict[str, np.ndarray]:
        """The `info` of a step in which the episodes of `ended` (bool [N]) ended."""
        info = {
            "episode_return": np.where(ended, self.returns, 0.0),
            "episode_length": np.where(ended, self.lengths, 0),
            "_episode_return": ended.copy(),
        }
        self.returns[ended] = 0.0
        self.lengths[ended] = 0
        return info


def check_seeds(seeds: Sequence[int] | None, num_envs: int) -> None:
    """Raises ValueError unless there are no seeds or one an environment."""
    if seeds is not None and len(seeds) != num_envs:
        raise ValueError(f"expected {num_envs} seeds, got {len(seeds)}: {seeds}")
