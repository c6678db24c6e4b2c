"""Seats that are moved from outside of the world."""

from __future__ import annotations

from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant


class OutsideParticipant(Participant):
    """Whoever moves it plays the world by its turns: see `World.play`. It sums up the
    rewards that it is given."""

    reward = 0.0

    def observe(self, message: Message) -> None:
        super().observe(message)
        self.reward += float(message.get("reward", 0.0))

    def take_reward(self) -> float:
        """The sum since the last call."""
        reward, self.reward = self.reward, 0.0
        return reward
