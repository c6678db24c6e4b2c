"""PettingZoo's parallel games, in which all act at once, as a world."""

from __future__ import annotations

from distrl.worlds.pettingzoo_game import PettingZooGame
from distrl.worlds.world import Turns


class ParallelWorld(PettingZooGame):
    """A game whose agents act at once: any with the interface of a ParallelEnv.

        0, 1 observe ► 0 acts, 1 acts, and nobody sees it ► the game's step

    A parley is one step of the game. Agents that are out of it are neither shown nor
    asked anything, behind the message that says so.
    """

    def _begin_game(self, seed: int) -> None:
        observations, infos = self.environment.reset(seed=seed)
        for agent in self.environment.agents:
            self._show(agent, observations[agent], 0.0, False, False, infos.get(agent))

    def turns(self) -> Turns:
        actions = {}
        for agent in list(self.environment.agents):
            actions[agent] = yield from self._ask(agent)
        results = self.environment.step(actions)
        for agent in dict.fromkeys([*actions, *self.environment.agents]):
            self._show(agent, *(of_all.get(agent) for of_all in results))
            self._returns[agent] += self._messages[agent]["reward"]
        self._end_if_over()
