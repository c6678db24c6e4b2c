"""A small game of two: who takes the last of the stones wins."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from distrl.worlds.world import World


class Nim(World):
    """Take one or two stones in turn; the index gives the number of stones, modulo 4,
    and five more."""

    def __init__(self, participants, index, asked=None):
        """`asked` are the seats that are asked at all, in turn (None: both)."""
        self._index, self._asked = index, asked or (0, 1)
        super().__init__(participants, "nim")

    def _clear(self):
        super()._clear()
        self.stones, self._turn, self._over = 0, 0, False

    def spaces(self, seat):
        seen = {
            "action_mask": spaces.Box(0, 1, (2,), np.int8),
            "observation": spaces.Box(0, 9, (1,), np.float32),
        }
        return spaces.Dict(seen), spaces.Discrete(2)

    @property
    def episode_done(self):
        return self._over

    @property
    def epoch_done(self):
        return not self.stones and not self._index.available

    def begin(self):
        self._over = False
        if not self.stones:
            number = self._index.take()
            if number is None:
                return False
            self.stones, self._turn = 5 + number % 4, 0
        return True

    def _view(self, seat, reward=0.0):
        mask = np.array([self.stones > 0, self.stones > 1], np.int8)
        seen = {"action_mask": mask, "observation": np.float32([self.stones])}
        self.tell(
            seat,
            {
                "observation": seen,
                "legal_actions": mask.astype(bool),
                "reward": reward,
                "terminated": self.stones == 0,
                "episode_done": self.stones == 0,
            },
        )

    def turns(self):
        seat = self._asked[self._turn % len(self._asked)]
        self._view(seat)
        act = self.take(seat, (yield (seat,)))
        taken = int(act["action"]) + 1
        if taken > self.stones:
            raise ValueError(f"took {taken} of {self.stones}")
        self.stones -= taken
        self._turn += 1
        if not self.stones:
            self._over = True
            for other in (0, 1):
                self._view(other, 1.0 if other == seat else -1.0)
