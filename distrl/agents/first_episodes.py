"""One episode in each slot of a vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distrl.core.specs import Nest
from distrl.environments.vector_environment import VectorEnvironment


class FirstEpisodes:
    """The first episode of each slot; what a slot does behind its end counts not.

        episodes = FirstEpisodes(environment, seeds, max_steps=1000)
        while episodes.running.any():
            info = episodes.step(policy(episodes.observation))

    An episode also ends at `max_steps` (None: never), and when its environment had to
    be made anew; its return is then what it had.
    """

    def __init__(
        self,
        environment: VectorEnvironment,
        seeds: Sequence[int],
        max_steps: int | None,
    ):
        """Resets all slots, each with its seed."""
        number = environment.num_envs
        self._environment, self._max_steps = environment, max_steps
        self.observation: Nest = environment.reset(seed=list(seeds))[0]
        self.running = np.ones(number, bool)
        self.returns = np.zeros(number)  # undiscounted rewards, as they are shown
        self.lengths = np.zeros(number, np.int64)

    def step(self, actions: Nest) -> dict[str, Any]:
        """Steps all; an info like the environment's, with nothing but what counts."""
        step = self._environment.step(actions)
        self.observation = step.observation
        self.returns += np.where(self.running, step.reward, 0.0)
        self.lengths += self.running
        over = step.terminated | step.truncated
        if self._max_steps is not None:
            over |= self.lengths >= self._max_steps
        ended = self.running & over
        self.running = self.running & ~over
        restarted = step.info.get("restarted")
        info = {} if restarted is None else {"restarted": restarted}
        return info | self._episodes(ended, step.info) if ended.any() else info

    def _episodes(self, ended: np.ndarray, info: dict[str, Any]) -> dict[str, Any]:
        """The environment's own account where there is one: rewards may be clipped."""
        known = info.get("_episode_return", np.zeros(len(ended), bool))
        own, length = self.returns, self.lengths
        return {
            "_episode_return": ended,
            "episode_return": np.where(known, info.get("episode_return", own), own),
            "episode_length": np.where(
                known, info.get("episode_length", length), length
            ),
        }
