"""The last frames of every slot as one observation, for any back-end and any nest."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from distrl.core.nests import flatten_as, map_nest, unflatten_as
from distrl.core.specs import ArraySpec, Bound, Nest, leaves
from distrl.environments.spec_spaces import spec_space
from distrl.environments.vector_environment import (
    Info,
    VectorEnvironment,
    VectorStep,
)
from distrl.environments.vector_wrapper import VectorWrapper

PADDINGS = ("reset", "zero")


class FrameStack(VectorWrapper):
    """Observations `[N, num_stacked, ...]`, the newest frame last.

    An episode begins with its first frame repeated (padding "reset") or with zeros in
    front of it ("zero"). With "reset" the spec says that all but the last frame are
    known from before, so that a memory stores each frame once.

    Behind an error, which loses a step, every stack begins anew. The row of an episode
    that was cut because its environment was made anew repeats the last frame.
    """

    def __init__(
        self, environment: VectorEnvironment, num_stacked: int, padding: str = "reset"
    ):
        """Raises ValueError for less than one frame or an unknown padding."""
        super().__init__(environment)
        if num_stacked < 1:
            raise ValueError(f"num_stacked must be at least 1, got {num_stacked}")
        if padding not in PADDINGS:
            raise ValueError(f"padding must be one of {PADDINGS}, got {padding!r}")
        repeats = padding == "reset"
        self._frame_spec = environment.spec.observation
        stacked = map_nest(
            lambda leaf: _stacked(leaf, num_stacked, repeats), self._frame_spec
        )
        self.spec = environment.spec._replace(observation=stacked)
        self.observation_space = spec_space(stacked)
        self._stacks = [
            _Stack(leaf, self.num_envs, num_stacked, repeats)
            for leaf in leaves(self._frame_spec)
        ]
        self._behind_end = np.ones(self.num_envs, bool)  # the next row begins anew

    def _first(
        self, observation: Nest, info: Info, begins: np.ndarray
    ) -> tuple[Nest, Info]:
        frames = flatten_as(self._frame_spec, observation)
        for stack, new in zip(self._stacks, frames, strict=True):
            stack.begin(new, begins)
        self._behind_end = self._behind_end & ~begins
        return self._observation(), info

    def _next(self, step: VectorStep) -> VectorStep:
        ended, info = step.terminated | step.truncated, step.info
        begins = self._behind_end
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            if "final_obs" in info:
                info = {**info, "final_obs": self._final(info)}
            begins = begins | ended
        frames = flatten_as(self._frame_spec, step.observation)
        for stack, new in zip(self._stacks, frames, strict=True):
            stack.push(new)
            if begins.any():
                stack.begin(new, begins)
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        self._behind_end = ended if next_step else np.zeros_like(ended)
        return step._replace(observation=self._observation(), info=info)

    def _lost(self) -> None:
        self._behind_end = np.ones(self.num_envs, bool)

    def _observation(self) -> Nest:
        stacked = [stack.read() for stack in self._stacks]
        return unflatten_as(self.spec.observation, stacked)

    def _final(self, info: Info) -> np.ndarray:
        """Last observations of episodes, stacked on the frames before them."""
        final = np.full(self.num_envs, None, object)
        for slot in np.flatnonzero(info["_final_obs"]):
            frames = flatten_as(self._frame_spec, info["final_obs"][slot])
            stacked = [
                stack.read_with(int(slot), frame, alone=self._behind_end[slot])
                for stack, frame in zip(self._stacks, frames, strict=True)
            ]
            final[slot] = unflatten_as(self.spec.observation, stacked)
        return final


class _Stack:
    """The last frames of one leaf, all slots; arrays that nobody else has."""

    def __init__(self, leaf: ArraySpec, num_envs: int, number: int, repeats: bool):
        self._frames = [leaf.zeros(num_envs) for _ in range(number)]
        self._repeats = repeats

    def push(self, frames: np.ndarray) -> None:
        """Takes in new frames `[N, ...]` of all slots, and forgets the oldest."""
        self._frames = [*self._frames[1:], frames.copy()]

    def begin(self, frames: np.ndarray, begins: np.ndarray) -> None:
        """Only these frames are left in the slots `begins` (bool [N])."""
        for old in self._frames[:-1]:
            old[begins] = frames[begins] if self._repeats else 0
        self._frames[-1][begins] = frames[begins]

    def read(self) -> np.ndarray:
        """`[N, number, ...]`, a copy."""
        return np.stack(self._frames, axis=1)

    def read_with(self, slot: int, frame: Any, alone: bool) -> np.ndarray:
        """`[number, ...]`: a slot's stack as if `frame` had been pushed, or behind
        nothing else."""
        older = [frames[slot] for frames in self._frames[1:]]
        if alone:
            fill = frame if self._repeats else np.zeros_like(frame)
            older = [fill] * len(older)
        return np.stack([*older, np.asarray(frame)])


def _stacked(leaf: ArraySpec, number: int, repeats: bool) -> ArraySpec:
    """The spec of a stack of frames; one with padding may hold zeros."""
    low, high = leaf.minimum, leaf.maximum
    if not repeats:
        low, high = _with_zero(low, min), _with_zero(high, max)
    return dataclasses.replace(
        leaf,
        shape=(number, *leaf.shape),
        minimum=low * number if isinstance(low, tuple) else low,
        maximum=high * number if isinstance(high, tuple) else high,
        num_stacked=number if repeats else 1,
    )


def _with_zero(bound: Bound, furthest: Any) -> Bound:
    if bound is None:
        return None
    if isinstance(bound, tuple):
        return tuple(furthest(value, 0) for value in bound)
    return furthest(bound, 0)
