"""What an actor tells about its episodes and its environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle.task import Task
from distrl.metrics.episode_statistics import EpisodeStatistics


class EpisodeCounts:
    """Counts an actor's episodes and restarts, and the CPU time of its environments'
    processes, in its task's counters and gauges."""

    def __init__(self, task: Task, environments: Sequence[VectorEnvironment]):
        self._task, self._environments = task, list(environments)
        self._statistics = EpisodeStatistics()
        self._child_cpu_secs = 0.0
        self.count_cpu()

    def add(self, info: dict[str, Any]) -> None:
        """The info of one vector step, which may be empty."""
        if "restarted" in info:
            restarts = int(np.count_nonzero(info["restarted"]))
            self._task.counters.add("environment_restarts", restarts)
        ended = info.get("_episode_return")
        if ended is None:
            return
        returns = info["episode_return"][ended]
        self._statistics.add(returns, info["episode_length"][ended])
        self._task.counters.add("episodes", returns.size)
        self._task.gauges["mean_return"] = self._statistics.mean_return
        self._task.gauges["mean_length"] = self._statistics.mean_length

    def count_cpu(self) -> None:
        """Adds what the environments' processes have taken since the last call."""
        now = sum(environment.child_cpu_secs() for environment in self._environments)
        self._task.counters.add("child_cpu_secs", now - self._child_cpu_secs)
        self._child_cpu_secs = now
