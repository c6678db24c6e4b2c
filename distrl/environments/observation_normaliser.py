"""Observations with mean 0 and variance 1, by running statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distrl.core.nests import flatten_as, map_nest, unflatten_as
from distrl.core.running_moments import RunningMoments
from distrl.core.specs import ArraySpec, Nest, named_leaves
from distrl.environments.spec_spaces import spec_space
from distrl.environments.vector_environment import (
    Info,
    VectorEnvironment,
    VectorStep,
)
from distrl.environments.vector_wrapper import VectorWrapper


class ObservationNormaliser(VectorWrapper):
    """Float32 observations `clip((x - mean) / sqrt(variance + epsilon))`, by element.

    Every observation counts once, first and last ones of episodes too, and is
    normalised with what is known including itself. `update = False` freezes the
    statistics, such as for evaluation.

    The same frame comes out differently at different times: to stack frames, put a
    FrameStack around this.
    """

    def __init__(
        self,
        environment: VectorEnvironment,
        clip: float = 10.0,
        epsilon: float = 1e-8,
        update: bool = True,
    ):
        """Raises ValueError, naming the leaf, unless all leaves are floating-point."""
        super().__init__(environment)
        if clip <= 0 or epsilon < 0:
            raise ValueError(
                f"expected clip > 0 and epsilon >= 0, got {clip}, {epsilon}"
            )
        self._clip, self._epsilon, self.update = clip, epsilon, update
        self._raw_spec = environment.spec.observation
        self.moments = {
            name: RunningMoments(leaf.shape) for name, leaf in _floats(self._raw_spec)
        }
        normal = map_nest(
            lambda leaf: ArraySpec(leaf.shape, "float32", -clip, clip), self._raw_spec
        )
        self.spec = environment.spec._replace(observation=normal)
        self.observation_space = spec_space(normal)

    def state(self) -> dict[str, dict[str, Any]]:
        """The moments' states, by leaf."""
        return {name: moments.state() for name, moments in self.moments.items()}

    def load(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes over a `state()`. Raises ValueError for one of other leaves."""
        if set(state) != set(self.moments):
            raise ValueError(f"expected {list(self.moments)}, got {list(state)}")
        for name, moments in self.moments.items():
            moments.load(state[name])

    def _first(
        self, observation: Nest, info: Info, begins: np.ndarray
    ) -> tuple[Nest, Info]:
        return self._normal(observation, begins), info

    def _next(self, step: VectorStep) -> VectorStep:
        info, rows = step.info, np.ones(self.num_envs, bool)
        if "restarted" in info:  # those that were cut show their last one again
            rows = ~(info["restarted"] & step.truncated)
        if "final_obs" in info:
            info = {**info, "final_obs": self._final(info)}
        return step._replace(
            observation=self._normal(step.observation, rows), info=info
        )

    def _normal(self, observation: Nest, rows: np.ndarray) -> Nest:
        """The normalised observations, those of `rows` (bool [N]) taken in first."""
        parts = []
        raw = flatten_as(self._raw_spec, observation)
        for (name, moments), part in zip(self.moments.items(), raw, strict=True):
            if self.update:
                try:
                    moments.update(part[rows])
                except ValueError as error:
                    raise ValueError(f"observation, leaf {name!r}: {error}") from error
            normal = moments.normalise(part, self._epsilon)
            parts.append(np.clip(normal, -self._clip, self._clip).astype(np.float32))
        return unflatten_as(self.spec.observation, parts)

    def _final(self, info: Info) -> np.ndarray:
        final = np.full(self.num_envs, None, object)
        for slot in np.flatnonzero(info["_final_obs"]):
            one = map_nest(lambda part: np.asarray(part)[None], info["final_obs"][slot])
            normal = self._normal(one, np.ones(1, bool))
            final[slot] = map_nest(lambda part: part[0], normal)
        return final


def _floats(spec: Nest) -> list[tuple[str, ArraySpec]]:
    named = named_leaves(spec)
    for name, leaf in named:
        if not np.issubdtype(np.dtype(leaf.dtype), np.floating):
            raise ValueError(
                f"only floating-point observations can be normalised, leaf {name!r} "
                f"is {leaf.dtype}{list(leaf.shape)}"
            )
    return named
