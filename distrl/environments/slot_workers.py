"""Environment slots in child processes: what lives there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from distrl.core.child_process import FORKSERVER_PRELOAD
from distrl.core.nests import flatten_as, unflatten_as
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.shared_arrays import SharedArrays
from distrl.core.specs import EnvironmentSpec, Nest, leaves
from distrl.environments.slot_records import (
    SlotArrays,
    SlotReport,
    SlotSettings,
    new_arrays,
)
from distrl.environments.slots import Factory, Slots

#: What children of environments import; the fork server does so once for all.
PRELOAD = (*FORKSERVER_PRELOAD, "distrl.environments.slot_workers")


class Description(NamedTuple):
    """What a worker's environments are."""

    spec: EnvironmentSpec
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    render_mode: str | None
    sums_episodes: list[bool]


class SlotWorker:
    """Slots `first` … of a vector environment of `total`, in a process of their own.

    Each subclass has a way of its own for observations and actions.
    """

    def __init__(
        self,
        factories: Sequence[Factory],
        settings: SlotSettings,
        seeds: EnvironmentSeeds | None,
        first: int,
        total: int,
        restart: int,
    ):
        self._slots = Slots(factories, settings, seeds, first, total, restart)
        self._range = slice(first, first + len(factories))

    def describe(self) -> Description:
        slots = self._slots
        return Description(
            slots.spec,
            slots.observation_space,
            slots.action_space,
            slots.render_mode,
            slots.sums_episodes,
        )

    def call(
        self, name: str, args: tuple, kwargs: dict[str, Any], attribute: bool
    ) -> list[Any]:
        return self._slots.call(name, args, kwargs, attribute)

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        self._slots.set_attr(name, values)

    def close(self) -> None:
        self._slots.close()


class SharedMemoryWorker(SlotWorker):
    """Observations, rewards, flags and actions are in memory that both sides have."""

    _shared: SharedArrays | None = None

    def attach(self, fd: int, layout: Any, buffers: int) -> None:
        """Takes the block of all workers, with so many buffers of a step."""
        self._shared = SharedArrays.attach(fd, layout)
        rows = [array[self._range] for array in self._shared.arrays]
        self._buffers, self._actions = split_fields(self._slots.spec, rows, buffers)

    def reset(
        self,
        buffer: int,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
    ) -> SlotReport | None:
        return _portable(self._slots.reset(seeds, options, self._buffers[buffer]))

    def step(self, buffer: int) -> SlotReport | None:
        actions = unflatten_as(self._slots.spec.action, self._actions)
        rows = self._slots.split(actions)
        return _portable(self._slots.step(rows, self._buffers[buffer]))

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()
        super().close()


class PipeWorker(SlotWorker):
    """Everything goes through the pipe: as nests, or as the lists of their leaves."""

    def __init__(self, *arguments: Any, flatten: bool):
        super().__init__(*arguments)
        self._flatten = flatten
        self._arrays = new_arrays(self._slots.spec, len(self._slots.environments))

    def reset(
        self, seeds: Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> tuple[SlotArrays, SlotReport | None]:
        report = self._slots.reset(seeds, options, self._arrays)
        return self._packed(), _portable(report)

    def step(self, actions: Any) -> tuple[SlotArrays, SlotReport | None]:
        if self._flatten:
            actions = unflatten_as(self._slots.spec.action, actions)
        rows = self._slots.split(actions)
        report = self._slots.step(rows, self._arrays)
        return self._packed(), _portable(report)

    def _packed(self) -> SlotArrays:
        if self._flatten:
            return self._arrays
        nest = unflatten_as(self._slots.spec.observation, self._arrays.observation)
        return self._arrays._replace(observation=nest)


Field = tuple[tuple[int, ...], str]  # shape and dtype


def shared_fields(spec: EnvironmentSpec, number: int, buffers: int) -> list[Field]:
    """What the block of `number` slots holds: so many steps, and the actions."""

    def fields(nest: Nest) -> list[Field]:
        return [((number, *leaf.shape), leaf.dtype) for leaf in leaves(nest)]

    rest: list[Field] = [
        ((number,), "float64"),
        ((number,), "bool"),
        ((number,), "bool"),
    ]
    return (fields(spec.observation) + rest) * buffers + fields(spec.action)


def split_fields(
    spec: EnvironmentSpec, arrays: Sequence[np.ndarray], buffers: int
) -> tuple[list[SlotArrays], list[np.ndarray]]:
    """The arrays of `shared_fields` as steps and as the leaves of the actions."""
    number = len(leaves(spec.observation))
    steps = []
    for start in range(0, (number + 3) * buffers, number + 3):
        one = arrays[start : start + number + 3]
        steps.append(SlotArrays(list(one[:number]), *one[number:]))
    return steps, list(arrays[(number + 3) * buffers :])


def check_actions(
    spec: EnvironmentSpec, actions: Nest, number: int
) -> list[np.ndarray]:
    """The leaves of actions for `number` slots. Raises ValueError, naming the leaf's
    spec, for another structure, shape, or kind of dtype."""
    found = []
    for leaf, value in zip(
        leaves(spec.action), flatten_as(spec.action, actions), strict=True
    ):
        array = np.asarray(value)
        fits = np.can_cast(array.dtype, leaf.dtype, "same_kind")
        if not fits or array.shape != (number, *leaf.shape):
            raise ValueError(
                f"expected {number} actions of {leaf.dtype}{list(leaf.shape)}, "
                f"got {array.dtype}{list(array.shape)}"
            )
        found.append(array)
    return found


def _portable(report: SlotReport | None) -> SlotReport | None:
    if report is None or not report.faults:
        return report
    faults = {slot: fault.portable() for slot, fault in report.faults.items()}
    return report._replace(faults=faults)
