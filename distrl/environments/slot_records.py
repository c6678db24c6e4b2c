"""What goes into and comes out of environment slots, also between processes."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from distrl.core.specs import EnvironmentSpec, leaves
from distrl.environments.faults import Fault
from distrl.environments.restarts import RestartPolicy


@dataclasses.dataclass(frozen=True)
class SlotSettings:
    """What a user chooses about the environments of any back-end."""

    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    keep_infos: bool = False  # what environments put into their infos is handed on
    restart_on_error: RestartPolicy = RestartPolicy()

    def __post_init__(self) -> None:
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        if self.restart_on_error.limit and not next_step:
            raise ValueError(
                f"restart_on_error needs autoreset in NEXT_STEP mode, got "
                f"{self.autoreset_mode}"
            )


class SlotArrays(NamedTuple):
    """Where the slots write one step."""

    observation: list[np.ndarray]  # leaves, [N, ...] each
    reward: np.ndarray  # float64 [N], for the sums
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N]


def new_arrays(spec: EnvironmentSpec, number: int) -> SlotArrays:
    """Arrays for a step of so many slots; the observations are unwritten."""
    return SlotArrays(
        [
            np.empty((number, *leaf.shape), leaf.dtype)
            for leaf in leaves(spec.observation)
        ],
        np.zeros(number),
        np.zeros(number, bool),
        np.zeros(number, bool),
    )


class SlotReport(NamedTuple):
    """What a step said beyond its arrays, by slot; all of it is rare."""

    episodes: dict[int, Any]  # `info["episode"]` of environments that report them
    infos: dict[int, dict[str, Any]]
    final: dict[int, tuple[Any, dict[str, Any]]]  # SAME_STEP: observation and info
    faults: dict[int, Fault]
    restarted: list[int]  # every environment that was made anew
    interrupted: list[int]  # those of them whose episode was cut: row to be filled

    @staticmethod
    def empty() -> SlotReport:
        return SlotReport({}, {}, {}, {}, [], [])

    def add(self, other: SlotReport, first: int) -> None:
        """Adds what another one says about the slots from `first` on."""
        dicts: Any = zip(self[:4], other[:4], strict=True)  # of different values
        for own, theirs in dicts:
            own.update({first + slot: value for slot, value in theirs.items()})
        for numbers, more in zip(self[4:], other[4:], strict=True):
            numbers.extend(first + slot for slot in more)
