"""A vector environment of distrl, served as one of Gymnasium's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from distrl.environments.vector_environment import VectorEnvironment


def as_gymnasium(environment: VectorEnvironment) -> VectorEnv:
    """`environment` with Gymnasium's interface, for its wrappers and other libraries.

        environment = as_gymnasium(SerialVectorEnvironment(factory, num_envs=8))
        environment = gymnasium.wrappers.vector.RecordEpisodeStatistics(environment)

    Both are closed together. Rewards are float64, though no more exact than float32.
    The infos are those of `environment`: what single environments say is in them only
    if it was made to keep it. Raises TypeError for anything else.
    """
    if not isinstance(environment, VectorEnvironment):
        raise TypeError(f"expected a VectorEnvironment of distrl: {environment!r}")
    return _Served(environment)


class _Served(VectorEnv):
    """The calls of Gymnasium's interface, passed on."""

    def __init__(self, environment: VectorEnvironment):
        self._environment = environment
        self.num_envs = environment.num_envs
        self.render_mode = environment.render_mode
        self.metadata = dict(environment.get_attr("metadata")[0])
        self.metadata["autoreset_mode"] = environment.autoreset_mode
        self.single_observation_space = environment.observation_space
        self.single_action_space = environment.action_space
        self.observation_space = batch_space(
            self.single_observation_space, self.num_envs
        )
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(  # type: ignore[override]  # Gymnasium's own ones take lists, too
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        return self._environment.reset(seed, options)

    def step(
        self, actions: Any
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observation, reward, *flags, info = self._environment.step(actions)
        return observation, reward.astype(np.float64), *flags, info

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What the method returns, or the attribute's value, by environment."""
        return tuple(self._environment.call(name, *args, **kwargs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The attribute of each environment. Raises AttributeError."""
        return tuple(self._environment.get_attr(name))

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute: a list or tuple by environment, or one value for all."""
        self._environment.set_attr(name, values)

    def render(self) -> tuple[np.ndarray, ...]:
        """A frame an environment."""
        return tuple(self._environment.render())

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environment; arguments of other back-ends change nothing."""
        self._environment.close()

    @property  # type: ignore[misc]  # nobody sets it
    def np_random(self) -> Any:
        """The generator of each environment, as in Gymnasium's own ones."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> Any:
        """What seeded the generator of each environment."""
        return self.get_attr("np_random_seed")
