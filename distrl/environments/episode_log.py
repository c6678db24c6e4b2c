"""Finished episodes in a file that the plotting tools of baselines read."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable

import numpy as np

from distrl.environments.vector_environment import VectorEnvironment, VectorStep
from distrl.environments.vector_wrapper import VectorWrapper

HEADER = "r,l,t"


class EpisodeLog(VectorWrapper):
    """Appends a line for every episode to a CSV in the form of baselines' monitor.

    The first line is `#{"t_start": Unix time, "env_id": name}`, the second `r,l,t`;
    then a line an episode: raw return, length in steps, seconds since `t_start`. An
    existing file goes on with its own start. Files belong to one process each; those
    tools look for names that end in "monitor.csv".
    """

    def __init__(
        self,
        environment: VectorEnvironment,
        path: str,
        env_id: str = "",
        clock: Callable[[], float] = time.time,
    ):
        """Opens the file, and makes its folder. Raises ValueError for an existing one
        that is no such log, OSError for a path that cannot be written."""
        super().__init__(environment)
        file = pathlib.Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        start = _start_of(file)
        self._clock, self._start = clock, clock() if start is None else start
        self._file = file.open("a")
        if start is None:
            first = json.dumps({"t_start": self._start, "env_id": env_id})
            self._file.write(f"#{first}\n{HEADER}\n")
            self._file.flush()

    def _next(self, step: VectorStep) -> VectorStep:
        finished = step.info.get("_episode_return")
        if finished is not None:
            secs = self._clock() - self._start
            for slot in np.flatnonzero(finished):
                total = float(step.info["episode_return"][slot])
                length = int(step.info["episode_length"][slot])
                self._file.write(f"{round(total, 6)},{length},{round(secs, 6)}\n")
            self._file.flush()
        return step

    def _close(self) -> None:
        self._file.close()
        super()._close()


def _start_of(file: pathlib.Path) -> float | None:
    """`t_start` of a log; None where there is none yet."""
    if not file.exists() or not file.stat().st_size:
        return None
    with file.open() as lines:
        first, second = lines.readline(), lines.readline()
    try:
        start = float(json.loads(first.removeprefix("#"))["t_start"])
    except (ValueError, LookupError, TypeError):
        start = None
    if start is None or not first.startswith("#") or second.strip() != HEADER:
        raise ValueError(f"{file} is no log of episodes, it begins {first[:80]!r}")
    return start
