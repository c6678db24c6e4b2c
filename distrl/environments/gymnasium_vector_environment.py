"""Gymnasium's vector environments under the interface of distrl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from distrl.core.errors import ConfigError
from distrl.core.nests import unflatten_as
from distrl.core.seeds import EnvironmentSeeds, integer_seed
from distrl.core.specs import EnvironmentSpec, Nest, leaves, validate
from distrl.environments.episode_totals import EpisodeTotals
from distrl.environments.spaces import leaf_getters, space_spec
from distrl.environments.vector_environment import (
    Info,
    VectorEnvironment,
    VectorStep,
    slots_to_reset,
)


class GymnasiumVectorEnvironment(VectorEnvironment):
    """A Gymnasium vector environment (in NEXT_STEP mode) as one of distrl.

    It is closed with this one. `step_wait` does the work of a step.
    """

    def __init__(
        self,
        environment: Any,
        seeds: EnvironmentSeeds | None = None,
        keep_infos: bool = False,
    ):
        """`environment` is a gymnasium.vector.VectorEnv; `seeds` are for the first
        `reset()`. Raises TypeError for anything else, ConfigError for an unsupported
        space or another autoreset mode."""
        if not isinstance(environment, VectorEnv):
            raise TypeError(f"expected a gymnasium.vector.VectorEnv: {environment!r}")
        mode = environment.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.NEXT_STEP:
            raise ConfigError(f"{environment} resets in mode {mode}, not NEXT_STEP")
        self.num_envs = environment.num_envs
        self.observation_space = environment.single_observation_space
        self.action_space = environment.single_action_space
        self.render_mode = environment.render_mode
        self.spec = EnvironmentSpec(
            space_spec(self.observation_space), space_spec(self.action_space)
        )
        # Any: synchronous and asynchronous ones have methods that VectorEnv lacks.
        self._environment: Any = environment
        self._seeds = seeds
        self._keep_infos = keep_infos
        self._leaf_specs = leaves(self.spec.observation)
        self._getters = leaf_getters(self.spec.observation)
        self._totals = EpisodeTotals(self.num_envs)
        self._ended = np.zeros(self.num_envs, bool)

    def _reset(
        self,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        timeout: float | None,
    ) -> tuple[Nest, Info]:
        if seeds is None and self._seeds is not None:
            seeds = [self._seeds.of(slot) for slot in range(self.num_envs)]
        self._seeds = None
        if seeds is not None and any(seed is not None for seed in seeds):
            self._environment.action_space.seed(joint_seed(seeds))
            seed = self._seed(seeds)
        else:
            seed = None
        mask = slots_to_reset(options, self.num_envs)
        own = None if options is None else dict(options)  # Gymnasium's take things out
        value, infos = self._environment.reset(seed=seed, options=own)
        observation = self._copy(value)
        validate(self.spec.observation, observation, 1, "observation")
        self._totals.reset(mask)
        self._ended = self._ended & ~mask
        return observation, dict(infos) if self._keep_infos else {}

    def _seed(self, seeds: Sequence[int | None]) -> Any:
        """What the environment's `reset` takes for these seeds."""
        return list(seeds)

    def _start_step(self, actions: Nest) -> None:
        validate(self.spec.action, actions, 1, "actions")
        for leaf in leaves(actions):
            if len(leaf) != self.num_envs:
                raise ValueError(f"expected {self.num_envs} actions, got {len(leaf)}")
        self._actions = actions

    def _finish_step(self, timeout: float | None) -> VectorStep:
        value, reward, terminated, truncated, infos = self._environment.step(
            self._actions
        )
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        self._totals.add(np.asarray(reward), self._ended)
        self._ended = ended = terminated | truncated
        info = dict(infos) if self._keep_infos else {}
        if ended.any():
            info |= self._totals.finish(ended)
        return VectorStep(
            self._copy(value), np.array(reward, np.float32), terminated, truncated, info
        )

    def _call(
        self, name: str, args: tuple, kwargs: dict[str, Any], attribute: bool = False
    ) -> list[Any]:
        if name == "render" and not attribute:
            return list(self._environment.render())
        inner = self._environment.unwrapped  # Gymnasium's wrappers pass no calls on
        if not hasattr(inner, "call"):  # one array program: its answer, for every slot
            value = getattr(inner, name)
            is_call = callable(value) and not attribute
            return [value(*args, **kwargs) if is_call else value] * self.num_envs
        if attribute:
            return list(inner.get_attr(name))
        return list(inner.call(name, *args, **kwargs))

    def _set_attr(self, name: str, values: Sequence[Any]) -> None:
        inner = self._environment.unwrapped
        if not hasattr(inner, "set_attr"):
            raise NotImplementedError(f"{name!r} is one attribute of all slots here")
        inner.set_attr(name, list(values))

    def _close(self) -> None:
        self._environment.close()  # Gymnasium's own is idempotent

    def _copy(self, value: Any) -> Nest:
        """Arrays of our own, in C order: the environment may use its own ones again."""
        parts = [
            np.array(get(value), leaf.dtype, order="C")
            for get, leaf in zip(self._getters, self._leaf_specs, strict=True)
        ]
        return unflatten_as(self.spec.observation, parts)


def joint_seed(seeds: Sequence[int | None]) -> int:
    """One 31-bit seed from those of all slots."""
    return integer_seed(np.random.SeedSequence([seed or 0 for seed in seeds]))
