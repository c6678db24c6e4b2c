"""Whether a record of experience fits its spec and itself."""

from __future__ import annotations

import numpy as np

from distrl.core.nests import flatten_as
from distrl.core.records import Experience, experience_spec
from distrl.core.specs import EnvironmentSpec, leaves, validate


class ExperienceCheck:
    """Call it with a record: raises ValueError, naming what does not fit."""

    def __init__(self, spec: EnvironmentSpec):
        self._spec = experience_spec(spec)
        self._kinds = [
            (np.dtype(leaf.dtype), leaf.shape) for leaf in leaves(self._spec)
        ]

    def __call__(self, experience: Experience) -> None:
        self._check_kinds(experience)
        _check_lengths(experience)
        _check_times(experience)

    def _check_kinds(self, experience: Experience) -> None:
        flat = flatten_as(self._spec, experience)
        # The comparison of every insertion; `validate` is slower and says what differs.
        if [(array.dtype, array.shape[1:]) for array in flat] != self._kinds or not all(
            array.ndim for array in flat
        ):
            validate(self._spec, experience, 1, "experience")


def _check_lengths(experience: Experience) -> None:
    blocks = experience.blocks
    if (blocks < 0).any():
        raise ValueError(f"negative number in blocks {blocks.tolist()}")
    num_frames = int((blocks[:, 1] * blocks[:, 2]).sum())
    num_rows = int(blocks[:, 3].sum())
    for frames in leaves(experience.frames):
        if len(frames) != num_frames:
            raise ValueError(f"blocks of {num_frames} frames came with {len(frames)}")
    for array in leaves(experience._replace(blocks=(), frames=())):
        if len(array) != num_rows:
            raise ValueError(f"blocks of {num_rows} rows came with {len(array)}")


def _check_times(experience: Experience) -> None:
    start, time_tm1 = experience.episode_start, experience.time_tm1
    num_streams = experience.blocks[:, 2].min(initial=2**31)
    good = (start >= 0) & (time_tm1 >= start) & (experience.time_t > time_tm1)
    good &= (experience.stream >= 0) & (experience.stream < num_streams)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise ValueError(
            f"row {row} of {num_streams} streams is impossible: stream "
            f"{experience.stream[row]}, episode from {start[row]}, time "
            f"{time_tm1[row]} to {experience.time_t[row]}"
        )
