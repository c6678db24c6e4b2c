"""What PettingZoo's games have in common, whoever acts when."""

from __future__ import annotations

import abc
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.messages import Message
from distrl.worlds.numbered_world import NumberedWorld
from distrl.worlds.participant import Participant
from distrl.worlds.reducers import Ratio
from distrl.worlds.world import Seat, World, shut_all


class PettingZooGame(NumberedWorld):
    """Numbered games of an environment; seat s is its agent s.

    Games come from an index, and each is reset with a seed of its own, so that it is
    the same wherever it is played. Metrics of each agent: "<agent>/return", and the
    shares of games with a positive, no, and a negative return: "<agent>/wins",
    "/draws", "/losses".
    """

    def __init__(
        self,
        environment_factory: Callable[[], Any],
        participants: Sequence[Participant],
        index: ExampleIndex,
        seed_of: Callable[[int], int] = lambda number: number,
        name: str = "",
    ):
        """Makes an environment; `seed_of` is given the number of a game. Raises
        ValueError unless there is a participant for each of the environment's agents.
        """
        self._make, self._seed_of = environment_factory, seed_of
        self.environment = environment_factory()
        self._seats = {a: s for s, a in enumerate(self.environment.possible_agents)}
        if len(self._seats) != len(participants):
            self.environment.close()
            raise ValueError(
                f"expected a participant for each of {list(self._seats)}, "
                f"got {len(participants)}"
            )
        metadata = getattr(self.environment, "metadata", {})
        name = name or metadata.get("name", "pettingzoo")
        super().__init__(participants, index, name)

    def _clear(self) -> None:
        super()._clear()
        self._messages: dict[str, Message] = {}  # what each agent sees in the game
        self._returns = dict.fromkeys(self._seats, 0.0)

    def spaces(self, seat: int) -> tuple[gymnasium.Space, gymnasium.Space]:
        agent = list(self._seats)[seat]
        environment = self.environment
        return environment.observation_space(agent), environment.action_space(agent)

    @abc.abstractmethod
    def _begin_game(self, seed: int) -> None:
        """Resets the environment."""

    # Playing.

    def begin_episode(self, number: int) -> None:
        self._messages = {}
        self._returns = dict.fromkeys(self._seats, 0.0)
        self._begin_game(self._seed_of(number))

    def _show(
        self,
        agent: str,
        observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: Any,
    ) -> None:
        """Tells an agent what it sees, the first time with the number of the game."""
        view = {
            "id": self.name,
            "observation": observation,
            "reward": float(reward or 0.0),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "episode_done": bool(terminated or truncated),
            "info": dict(info or {}),
            **_legal_actions(observation, info),
        }
        if agent not in self._messages:
            view["episode"] = self.number
        self._messages[agent] = view
        self.tell_own(self._seats[agent], view)

    def _ask(self, agent: str) -> Generator[Seat, Message, Any]:
        """What an agent does. Raises RuntimeError for an act without an action,
        ValueError for an action that is not legal: the next parley asks again."""
        seat = self._seats[agent]
        self.recall(seat)
        act = self.take(seat, (yield (seat,)))
        if "action" not in act:
            raise RuntimeError(f"{self.name}: expected an action, got {dict(act)}")
        action, legal = act["action"], self.environment.action_space(agent)
        known = not isinstance(legal, gymnasium.spaces.Discrete) or action in legal
        if "legal_actions" in self._messages[agent]:
            legal = np.flatnonzero(self._messages[agent]["legal_actions"]).tolist()
            known = known and action in legal
        if not known:
            raise ValueError(f"{self.name}: {agent} did {action!r}, legal are {legal}")
        return action

    def _end_if_over(self) -> None:
        """Counts the game, when nobody is left in it."""
        if self.environment.agents or self.number is None:
            return
        self.end_episode()
        for agent, reached in self._returns.items():
            self.metrics.add(f"{agent}/return", Ratio(reached, 1))
            self.metrics.add(f"{agent}/wins", Ratio(reached > 0, 1))
            self.metrics.add(f"{agent}/draws", Ratio(reached == 0, 1))
            self.metrics.add(f"{agent}/losses", Ratio(reached < 0, 1))

    # The order of its life.

    def share(self, row: int) -> World:
        shared: Any = super().share(row)
        shared.environment = self._make()
        return shared

    def shutdown(self) -> None:
        if not self._closed:
            shut_all([self.environment.close, super().shutdown])


def _legal_actions(observation: Any, info: Any) -> dict[str, np.ndarray]:
    """The mask, from where PettingZoo's games have it: the observation, or the info."""
    for holder in (observation, info):
        if isinstance(holder, Mapping) and "action_mask" in holder:
            return {"legal_actions": np.asarray(holder["action_mask"], bool)}
    return {}
