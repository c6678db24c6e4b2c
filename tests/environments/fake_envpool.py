"""A module in the place of envpool: counting games that follow its measured ways.

Measured with envpool 1.2.5: the reset of an ended slot is the next step (its action is
ignored, reward 0, flags False); `info["reward"]` is raw, `info["terminated"]` (int32)
is the end of the game; behind the loss of a life the stack of frames goes on; an
episode that reaches its time limit is `truncated` alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

LIVES, STACK = 2, 3


class FakePool:
    """A game has two lives; action 1 loses one. A step is worth 10, clipped to 1.

    A frame shows a running number of the slot, from its seed. Action 2 ends the
    game in the no-ops of the next reset; action 3 reaches the time limit.
    """

    def __init__(self, seed: list[int], is_atari: bool = True, **options: Any):
        self.config = {"stack_num": STACK, "gray_scale": True, "num_envs": len(seed)}
        if is_atari:
            self.config["zero_discount_on_life_loss"] = False
        self.observation_space = spaces.Box(0, 255, (STACK, 1), np.uint8)
        self.action_space = spaces.Discrete(4)
        self.options = options
        self._slots = [_Slot(one % 100) for one in seed]

    def reset(self) -> tuple[np.ndarray, dict]:
        for slot in self._slots:
            slot.new_game()
        return self._shown()[0], self._shown()[-1]

    def send(self, actions: np.ndarray, slots: np.ndarray) -> None:
        for index, action in zip(slots, actions, strict=True):
            self._slots[index].step(int(action))

    def recv(self) -> tuple:
        return self._shown()

    def render(self, env_ids: np.ndarray) -> np.ndarray:
        return np.full((len(env_ids), 2, 2, 3), env_ids[:, None, None, None], np.uint8)

    def _shown(self) -> tuple:
        slots = self._slots
        raw = np.array([slot.reward for slot in slots], np.float32)
        info = {
            "lives": np.array([slot.lives for slot in slots], np.int32),
            "reward": raw,
            "terminated": np.array([slot.over for slot in slots], np.int32),
            "env_id": np.arange(len(slots), dtype=np.int32),
            "players": {},
        }
        frames = np.array([slot.frames for slot in slots], np.uint8)[..., None]
        terminated = np.array([slot.lost and not slot.cut for slot in slots])
        truncated = np.array([slot.cut for slot in slots])
        return frames, np.sign(raw), terminated, truncated, info


class _Slot:
    def __init__(self, number: int):
        self._number = number
        self.new_game()

    def new_game(self) -> None:
        self.frames = [self._next()] * STACK
        self.lives, self._dies_in_reset = LIVES, False
        self.reward, self.lost, self.over, self.cut = 0.0, False, False, False

    def step(self, action: int) -> None:
        if self.over or self.cut or (self.lost and self._dies_in_reset):
            self.new_game()
            return
        self.frames = [*self.frames[1:], self._next()]
        if self.lost:  # the game goes on
            self.reward, self.lost = 0.0, False
            return
        self.reward = 10.0
        self.lost, self.cut = action in (1, 2), action == 3
        self._dies_in_reset = action == 2
        self.lives -= self.lost
        self.over = self.lives == 0

    def _next(self) -> int:
        self._number += 1
        return self._number


class FakeEnvPool:
    """The module."""

    def __init__(self, is_atari: bool = True):
        self._is_atari = is_atari
        self.made: list[FakePool] = []
        self.seeds: list[list[int]] = []

    def list_all_envs(self) -> list[str]:
        return ["Pong-v5", "Breakout-v5"]

    def make(
        self,
        task_id: str,
        env_type: str,
        num_envs: int,
        seed: list[int],
        **options: Any,
    ) -> FakePool:
        if "speed" in options:
            raise TypeError("unexpected option 'speed'")
        self.seeds.append(seed)
        self.made.append(FakePool(seed, self._is_atari, **options))
        return self.made[-1]
