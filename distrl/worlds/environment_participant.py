"""A Gymnasium environment as a participant: it shows, and is acted upon."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant
from distrl.worlds.reducers import Ratio, Series, Sum


class EnvironmentParticipant(Participant):
    """Seat 0 of a PartnerWorld: single-agent reinforcement learning.

    Its episodes are numbered by an index, and each is reset with a seed of its own, so
    that it is the same wherever it is played. An episode of T steps takes T + 1
    parleys: the last observation is shown, too, with `episode_done`, and what is
    answered to it is ignored.

    Metrics: "returns", the undiscounted return of each episode by its number, "length"
    and "env_steps". Where the info of the last step has `episode: {"r": return, "l":
    length}` (Gymnasium's own statistics), these are taken.
    """

    def __init__(
        self,
        environment_factory: Callable[[], gymnasium.Env],
        index: ExampleIndex,
        seed_of: Callable[[int], int] = lambda number: number,
        name: str = "environment",
    ):
        """`seed_of` is given the number of an episode."""
        super().__init__(name)
        self._make, self._index, self._seed_of = environment_factory, index, seed_of
        self.num_episodes = index.settings.size
        self._environment: gymnasium.Env | None = None  # made when it is needed
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._number: int | None = None  # of the episode under way
        self._message: Message | None = None  # to be shown
        self._return, self._length = 0.0, 0

    def claim(self) -> bool:
        if self._number is None:
            self._number = self._index.take()
        return self._number is not None

    @property
    def epoch_done(self) -> bool:
        return self._number is None and not self._index.available

    def act(self) -> Message:
        number = self._number
        if number is None:
            raise RuntimeError(f"{self.id}: act() without an episode: see claim()")
        if self._message is None:
            self._environment = self._environment or self._make()
            observation, info = self._environment.reset(seed=self._seed_of(number))
            first = _message(observation, 0.0, False, False, info)
            self._message = {**first, "episode": number}
        elif self._message["episode_done"]:
            self._finish(number, self._message)
            message = self._message
            self._begin_anew()
            return message
        return self._message

    def observe(self, message: Message) -> None:
        """Raises RuntimeError for a message without an action."""
        if self._message is None or self._environment is None:
            return  # the answer to a last observation
        if "action" not in message:
            raise RuntimeError(f"{self.id}: expected an action, got {dict(message)}")
        result = self._environment.step(message["action"])
        self._message = _message(*result)
        self._return += float(result[1])
        self._length += 1

    def _finish(self, number: int, last: Message) -> None:
        episode = last["info"].get("episode", {})
        length = int(episode.get("l", self._length))
        reached = float(episode.get("r", self._return))
        self.metrics.add("returns", Series(((number, reached),)))
        self.metrics.add("length", Ratio(length, 1))
        self.metrics.add("env_steps", Sum(length))
        self._index.finish(number)

    def share(self, row: int) -> EnvironmentParticipant:
        shared = copy.copy(self)
        shared.observation, shared._environment = {}, None
        shared._begin_anew()
        return shared

    def indices(self) -> Mapping[str, ExampleIndex]:
        return {self.id: self._index}

    def reset(self) -> None:
        super().reset()
        self._index.reset()
        self._begin_anew()

    def shutdown(self) -> None:
        environment, self._environment = self._environment, None
        if environment is not None:
            environment.close()


def _message(
    observation: Any, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]
) -> Message:
    return {
        "observation": observation,
        "reward": float(reward),
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "episode_done": bool(terminated or truncated),
        "info": info,
    }
