"""Vector environments around others, to be changed by subclasses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distrl.core.specs import Nest
from distrl.environments.vector_environment import (
    Info,
    VectorEnvironment,
    VectorStep,
    slots_to_reset,
)


class VectorWrapper(VectorEnvironment):
    """Another vector environment, of any kind, unchanged; closed with this one.

    Subclasses change `_first` (what a reset returns), `_next` (what a step does) and
    `_lost` (a step that failed), and spec and spaces in their constructors. They never
    write into the arrays they are given, which the back-end may need again.
    """

    def __init__(self, environment: VectorEnvironment):
        """Raises TypeError for what is no VectorEnvironment of distrl."""
        if not isinstance(environment, VectorEnvironment):
            raise TypeError(f"expected a VectorEnvironment, got {environment!r}")
        self.environment = environment
        self.num_envs, self.spec = environment.num_envs, environment.spec
        self.observation_space = environment.observation_space
        self.action_space = environment.action_space
        self.autoreset_mode = environment.autoreset_mode
        self.render_mode = environment.render_mode

    @property
    def unwrapped(self) -> VectorEnvironment:
        """The back-end below all wrappers."""
        environment = self.environment
        while isinstance(environment, VectorWrapper):
            environment = environment.environment
        return environment

    @property
    def num_restarts(self) -> int:
        """How many environments were made anew behind an error."""
        return getattr(self.environment, "num_restarts", 0)

    def render(self) -> np.ndarray:
        self._check_idle("render")
        return self.environment.render()

    def load_parameters(self, version: int, parameters: np.ndarray) -> None:
        self.environment.load_parameters(version, parameters)

    # What subclasses change.

    def _first(
        self, observation: Nest, info: Info, begins: np.ndarray
    ) -> tuple[Nest, Info]:
        """The result of a reset of the slots `begins` (bool [N], all without a mask).

        The other slots' rows are their last ones again.
        """
        return observation, info

    def _next(self, step: VectorStep) -> VectorStep:
        """The result of a step."""
        return step

    def _lost(self) -> None:
        """A reset or step raised an error: what it showed, and which episodes ended in
        it, will never be known here."""

    # Calls in order reach the wrapped environment in order: the two agree at any time
    # on whether a step is pending, behind a TimeoutError as well.

    def _reset(
        self,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        timeout: float | None,
    ) -> tuple[Nest, Info]:
        begins = slots_to_reset(options, self.num_envs)
        try:
            observation, info = self.environment.reset(seeds, options, timeout)
        except BaseException:
            self._lost()
            raise
        return self._first(observation, info, begins)

    def _start_step(self, actions: Nest) -> None:
        self.environment.step_async(actions)

    def _finish_step(self, timeout: float | None) -> VectorStep:
        try:
            step = self.environment.step_wait(timeout)
        except TimeoutError:
            raise
        except BaseException:
            self._lost()
            raise
        return self._next(step)

    def _call(
        self, name: str, args: tuple, kwargs: dict[str, Any], attribute: bool = False
    ) -> list[Any]:
        if attribute:
            return self.environment.get_attr(name)
        return self.environment.call(name, *args, **kwargs)

    def _set_attr(self, name: str, values: Sequence[Any]) -> None:
        self.environment.set_attr(name, list(values))

    def _close(self) -> None:
        self.environment.close()
