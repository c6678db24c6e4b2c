"""PettingZoo's turn-based (AEC) games as a world."""

from __future__ import annotations

from distrl.worlds.pettingzoo_game import PettingZooGame
from distrl.worlds.world import Turns


class PettingZooWorld(PettingZooGame):
    """A game in which one agent acts at a time.

        whoever is on turn observes ► acts ► the game's step

    A parley is one act. Who is on turn observes first: their own observation, mask and
    reward since their last act. Who is out of the game is told so, once, and the world
    steps for them.
    """

    def _begin_game(self, seed: int) -> None:
        self.environment.reset(seed=seed)

    def turns(self) -> Turns:
        self._dismiss()
        if self.environment.agents:
            agent = self.environment.agent_selection
            self._show(agent, *self.environment.last())
            self.environment.step((yield from self._ask(agent)))
            for name, reward in self.environment.rewards.items():
                self._returns[name] += float(reward)
            self._dismiss()
        self._end_if_over()

    def _dismiss(self) -> None:
        """Shows its end to whoever is on turn and out of the game."""
        environment = self.environment
        while environment.agents:
            agent = environment.agent_selection
            if not (environment.terminations[agent] or environment.truncations[agent]):
                return
            self._show(agent, *environment.last())
            environment.step(None)
