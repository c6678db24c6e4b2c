"""Greedy episodes of an actor during the run, a step at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import numpy as np

from distrl.agents.actor_learner_agent import parameter_store
from distrl.agents.evaluation import Judged, greedy_steps
from distrl.agents.learner_loop import BEST
from distrl.cluster.parameter_store import ParameterStore
from distrl.core.errors import PeerUnreachable
from distrl.core.threads import Deadline
from distrl.environments.vector_environment import VectorEnvironment
from distrl.lifecycle.task import Task

log = logging.getLogger(__name__)


class GreedyEvaluation:
    """Plays greedy episodes when they are due, and tells how good parameters are.

    The best ones so far are left on the ps, where learner 0 finds them. Nothing of it
    is shipped.
    """

    def __init__(
        self,
        task: Task,
        environment: VectorEnvironment | None,
        make_policy: Callable[[], Judged],
        period_secs: float,
        num_episodes: int,
    ):
        """Without an `environment` there is never anything to do: another actor is
        judged."""
        self._task = task
        self.environments = [] if environment is None else [environment]
        self._judged: tuple[VectorEnvironment, Judged] | None = None
        if environment is not None:
            self._judged = environment, make_policy()
        self._period, self._num_episodes = period_secs, num_episodes
        self._due = Deadline(period_secs)
        self._steps: Iterator[list[float] | None] | None = None
        self._version, self._parameters = -1, np.zeros(0, np.uint8)
        self._best: ParameterStore | None = None
        self._best_return = -np.inf

    def advance(self, version: int, parameters: np.ndarray) -> bool:
        """One step of an evaluation; False when there is nothing to do, such as before
        the first parameters.

        One that begins judges these parameters, one under way those it began with.
        """
        if self._steps is None:
            if self._judged is None or not parameters.size or not self._due.passed:
                return False
            self._steps = self._begin(*self._judged, version, parameters)
        returns = next(self._steps)
        if returns is not None:
            self._finish(returns)
        return True

    def _begin(
        self,
        environment: VectorEnvironment,
        policy: Judged,
        version: int,
        parameters: np.ndarray,
    ) -> Iterator[list[float] | None]:
        self._version, self._parameters = version, parameters
        policy.load_flat(version, parameters)
        return greedy_steps(environment, policy.greedy, self._num_episodes)

    def _finish(self, returns: list[float]) -> None:
        self._steps, self._due = None, Deadline(self._period)
        reached = float(np.mean(returns))
        log.info("evaluation of version %d: %.2f", self._version, reached)
        gauges = {"evaluation_return": reached, "evaluation_version": self._version}
        if reached >= self._best_return and not self._was_surpassed(reached):
            if self._leave_best():
                self._best_return = reached
                gauges |= {"best_return": reached, "best_version": self._version}
        self._task.gauges |= gauges

    def _leave_best(self) -> bool:
        """Leaves these parameters on the ps, if they can be reached."""
        self._best = self._best or parameter_store(self._task, BEST)
        try:
            self._best.write(self._version, self._parameters)
        except PeerUnreachable as error:
            log.warning("version %d is not kept: %s", self._version, error)
            return False
        return True

    def _was_surpassed(self, reached: float) -> bool:
        """Whether an earlier life of this task has left better parameters."""
        view = self._task.view
        return view.best_version is not None and reached < view.best_return

    def close(self) -> None:
        for judged in self._judged or ():
            judged.close()
        if self._best is not None:
            self._best.close()
