"""Any Gymnasium environments, stepped one after the other in this thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import Nest
from distrl.environments.slot_records import SlotSettings, new_arrays
from distrl.environments.slot_vector_environment import SlotVectorEnvironment
from distrl.environments.slots import Factory, Slots
from distrl.environments.vector_environment import Info, VectorStep


class SerialVectorEnvironment(SlotVectorEnvironment):
    """N environments in this thread: the fastest kind for environments that are cheap.

    `step_wait` does the work of a step.
    """

    def __init__(
        self,
        environment_factory: Factory,
        num_envs: int,
        seeds: EnvironmentSeeds | None = None,
        settings: SlotSettings = SlotSettings(),
    ):
        """Makes the environments.

        Args:
          environment_factory: called once for each environment.
          num_envs: at least 1.
          seeds: of the environments' first resets.
          settings: what any back-end takes.

        Raises ConfigError for an unsupported space, ValueError for other bad arguments
        or environments whose spaces differ, and what the factory raises.
        """
        check_factory(environment_factory, num_envs)
        factories = [environment_factory] * num_envs
        self._slots = slots = Slots(factories, settings, seeds)
        spaces = slots.observation_space, slots.action_space
        self._describe(
            *(num_envs, settings, slots.spec, spaces),
            *(slots.render_mode, slots.sums_episodes),
        )

    def _reset(
        self,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        timeout: float | None,
    ) -> tuple[Nest, Info]:
        arrays = new_arrays(self.spec, self.num_envs)
        self._keep_rows(arrays.observation, options)
        report = self._slots.reset(seeds, options, arrays)
        return self._first(arrays.observation, report, options)

    def _start_step(self, actions: Nest) -> None:
        self._rows = self._slots.split(actions)

    def _finish_step(self, timeout: float | None) -> VectorStep:
        arrays = new_arrays(self.spec, self.num_envs)
        report = self._slots.step(self._rows, arrays)
        return self._result(arrays, report)

    def _call(
        self, name: str, args: tuple, kwargs: dict[str, Any], attribute: bool = False
    ) -> list[Any]:
        return self._slots.call(name, args, kwargs, attribute)

    def _set_attr(self, name: str, values: Sequence[Any]) -> None:
        self._slots.set_attr(name, values)

    def _close(self) -> None:
        """Raises the first error of environments that could not be closed."""
        self._slots.close()


def check_factory(environment_factory: Any, num_envs: int) -> None:
    """Raises TypeError for what is no factory, ValueError for no environments."""
    if not callable(environment_factory):
        raise TypeError(
            "expected a factory that makes an environment, got a non-callable "
            f"{type(environment_factory).__name__}: {environment_factory!r}"
        )
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
