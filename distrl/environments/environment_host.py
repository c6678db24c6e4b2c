"""One environment in a child process: what lives there."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import gymnasium
from gymnasium.error import ResetNeeded

from distrl.core.nests import unflatten_as
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.environments.slots import Factory
from distrl.environments.spaces import (
    WrongObservation,
    environment_spec,
    leaf_getters,
    observation_check,
)

Reset = tuple[Nest, dict[str, Any]]  # observation and info
Step = tuple[Nest, float, bool, bool, dict[str, Any]]  # Gymnasium's five values


class HostDescription(NamedTuple):
    """What the child tells about its environment."""

    spec: EnvironmentSpec
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    render_mode: str | None


class EnvironmentHost:
    """The environment in the child of a ProcessEnvironment, which has the docs."""

    def __init__(self, factory: Factory, name: str, flatten: bool, seed: int | None):
        self._name, self._flatten, self._seed = name, flatten, seed
        self._needs_reset = True
        self._environment = environment = factory()
        try:
            if not isinstance(environment, gymnasium.Env):
                raise TypeError(f"{name}: not a gymnasium.Env: {environment!r}")
            self._spec = environment_spec(environment)
        except BaseException:
            with contextlib.suppress(Exception):
                environment.close()
            raise
        self._getters = leaf_getters(self._spec.observation)
        self._check_observation = observation_check(self._spec.observation)

    def describe(self) -> HostDescription:
        made = self._environment
        spaces = made.observation_space, made.action_space
        return HostDescription(self._spec, *spaces, made.render_mode)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Reset:
        self._needs_reset = True
        seed, self._seed = self._seed if seed is None else seed, None
        if seed is not None:
            self._environment.action_space.seed(seed)
        value, info = self._environment.reset(seed=seed, options=options)
        self._check(value)
        packed = self._packed(value)
        self._needs_reset = False
        return packed, info

    def step(self, action: Any) -> Step:
        if self._needs_reset:
            raise ResetNeeded(
                f"{self._name}: step() before the first reset() or behind an error"
            )
        if self._flatten:
            action = unflatten_as(self._spec.action, action)
        self._needs_reset = True
        value, reward, terminated, truncated, info = self._environment.step(action)
        rest = float(reward), bool(terminated), bool(truncated), info
        packed = self._packed(value)
        self._needs_reset = False
        return (packed, *rest)

    def _check(self, observation: Any) -> None:
        try:
            self._check_observation(observation)
        except WrongObservation as error:
            raise WrongObservation(f"{self._name}: {error}") from error

    def _packed(self, observation: Any) -> Any:
        """The observation in the structure of its space, or the leaves of that."""
        try:
            parts = [get(observation) for get in self._getters]
        except (LookupError, TypeError):
            self._check(observation)  # raises a better one
            raise
        if self._flatten:
            return parts
        return unflatten_as(self._spec.observation, parts)

    def call(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        value = self._environment.get_wrapper_attr(name)
        return value(*args, **kwargs) if callable(value) else value

    def get(self, name: str) -> Any:
        return self._environment.get_wrapper_attr(name)

    def set(self, name: str, value: Any) -> None:
        self._environment.set_wrapper_attr(name, value)

    def close(self) -> None:
        self._environment.close()
