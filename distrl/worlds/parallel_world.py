"""PettingZoo's parallel games, in which all act at once, as a world."""

from __future__ import annotations

from typing import Any

from distrl.worlds.messages import Message
from distrl.worlds.pettingzoo_game import PettingZooGame
from distrl.worlds.world import Turns


class ParallelWorld(PettingZooGame):
    """A game whose agents act at once: any with the interface of a ParallelEnv.

        0, 1 observe ► 0 acts, 1 acts, and nobody sees it ► the game's step

    A parley is one step of the game. Agents that are out of it are neither shown nor
    asked anything, behind the message that says so.
    """

    def _clear(self) -> None:
        super()._clear()
        self._seen: dict[str, Message] = {}  # what participants made of their views

    def _begin_game(self, seed: int) -> None:
        observations, infos = self.environment.reset(seed=seed)
        for agent in self.environment.agents:
            self._show(agent, observations[agent], 0.0, False, False, infos.get(agent))

    def turns(self) -> Turns:
        actions = {}
        for agent in list(self.environment.agents):
            # One that sits in several seats has seen the views of the others since.
            self.participants[self._seats[agent]].observation = self._seen[agent]
            actions[agent] = yield from self._ask(agent)
        results = self.environment.step(actions)
        for agent in dict.fromkeys([*actions, *self.environment.agents]):
            self._show(agent, *(of_all.get(agent) for of_all in results))
            self._returns[agent] += self._views[agent]["reward"]
        self._end_if_over()

    def _show(self, agent: str, *result: Any) -> None:
        super()._show(agent, *result)
        self._seen[agent] = self.participants[self._seats[agent]].observation
