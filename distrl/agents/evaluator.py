"""A task beside the run that judges what has been published, over and over."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from distrl.agents.evaluation import Judged
from distrl.agents.evaluation_world import EvaluationWorld, returns_of
from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle.task import Task
from distrl.worlds.example_index import ExampleIndex

log = logging.getLogger(__name__)


class Evaluator:
    """Plays the same numbered greedy episodes under one version after the other.

    Gauges of its task: "evaluator_return", the mean return, "evaluator_std", its
    spread, "evaluator_version", of which parameters; counters "evaluations" and
    "evaluation_episodes". The run itself does not look at them.
    """

    def __init__(
        self,
        task: Task,
        environment: VectorEnvironment,
        judged: Judged,
        seeds: Sequence[int],
    ):
        """Takes over environment and policy; `seeds` are those of the episodes."""
        self._task, self._judged = task, judged
        index = ExampleIndex(len(seeds))
        self._world = EvaluationWorld(
            environment, judged.greedy, index, seeds, judged.close
        )
        self._version, self._plays = -1, False

    def advance(self, newest: tuple[int, np.ndarray] | None) -> bool:
        """A step of the evaluation under way, or of one of the newest parameters, where
        they have not been judged yet; False when there is nothing to do."""
        if not self._plays:
            if newest is None or newest[0] <= self._version:
                return False
            self._judged.load_flat(*newest)
            self._version, self._plays = newest[0], True
        if not self._world.parley():
            self._finish()
        return True

    def _finish(self) -> None:
        returns = returns_of(self._world.report())
        self._task.gauges |= {
            "evaluator_return": float(np.mean(returns)),
            "evaluator_std": float(np.std(returns)),
            "evaluator_version": self._version,
        }
        self._task.counters.add("evaluations", 1)
        self._task.counters.add("evaluation_episodes", len(returns))
        log.info("version %d: %.2f", self._version, np.mean(returns))
        self._world.reset()
        self._plays = False

    def close(self) -> None:
        self._world.shutdown()
