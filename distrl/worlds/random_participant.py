"""Chance as a player: what every policy should beat."""

from __future__ import annotations

import copy

import numpy as np

from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant


class RandomParticipant(Participant):
    """Each legal action is as likely as another.

    An episode that has a number is played the same whenever, and wherever, it comes.
    """

    def __init__(self, num_actions: int, seed: int = 0, name: str = "", first: int = 0):
        """Acts by `first` … `first` + `num_actions` - 1. Raises ValueError for none."""
        super().__init__(name)
        if num_actions < 1:
            raise ValueError(f"num_actions must be at least 1, got {num_actions}")
        self._num_actions, self._first = num_actions, first
        self._seed = seed
        self._key: tuple[int, ...] = (0,)  # of the row; an episode has (1, number)
        self._random = self._stream(self._key)

    def _stream(self, key: tuple[int, ...]) -> np.random.Generator:
        sequence = np.random.SeedSequence(self._seed, spawn_key=key)
        return np.random.default_rng(sequence)

    def observe(self, message: Message) -> None:
        super().observe(message)
        if "episode" in message:
            self._random = self._stream((1, message["episode"]))

    def act(self) -> Message:
        """Raises ValueError for a mask of another size, or without a legal action."""
        legal = self.observation.get("legal_actions")
        if legal is None:
            return {
                "action": self._first + int(self._random.integers(self._num_actions))
            }
        if np.shape(legal) != (self._num_actions,) or not np.any(legal):
            raise ValueError(
                f"{self.id}: expected legal_actions [{self._num_actions}] with one or "
                f"more, got {legal!r}"
            )
        return {"action": self._first + int(self._random.choice(np.flatnonzero(legal)))}

    def share(self, row: int) -> RandomParticipant:
        shared = copy.copy(self)
        shared.observation, shared._key = {}, (*self._key, row)
        shared._random = shared._stream(shared._key)
        return shared

    def reset(self) -> None:
        super().reset()
        self._random = self._stream(self._key)
