"""What `benchmark.unrolls` and its peers agree on, and what a peer program reports.

Imported by the interpreters of the peers: needs nothing but Python.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

UNROLL_LENGTH = 20  # actor steps
BATCH_SIZE = 25  # unrolls
BATCH_STEPS = UNROLL_LENGTH * BATCH_SIZE  # env steps
NUM_ENVS = {"cartpole": 10, "pong": 4}  # of one actor
HIDDEN_SIZES = (64, 64)  # units, tanh; CartPole
LEARNING_RATE = 5e-4
ENTROPY_COST = 0.01


def parse(description: str | None) -> argparse.Namespace:
    """The flags of a peer program."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--task", choices=sorted(NUM_ENVS), default="cartpole")
    parser.add_argument("--secs", type=float, default=30.0, help="that are measured")
    parser.add_argument("--warm_up_secs", type=float, default=8.0, help="of training")
    parser.add_argument("--num_actors", type=int, default=2, help="worker processes")
    return parser.parse_args()


class SteadyWindow:
    """`secs` of training behind a warm-up, which begins with the first learner step.

        while not window.over:
            window.note(env_steps, learner_steps)  # as often as they change

    Times are those of `time.time()`, by which the CPU is looked up from outside.
    """

    def __init__(self, warm_up_secs: float, secs: float):
        self._warm_up_secs, self._secs = warm_up_secs, secs
        self._trained_since: float | None = None
        self._first: tuple[float, int, int] | None = None
        self._last: tuple[float, int, int] | None = None

    @property
    def over(self) -> bool:
        return self._last is not None

    def note(self, env_steps: int, learner_steps: int) -> None:
        """Totals of now."""
        now = time.time()
        if self._trained_since is None:
            self._trained_since = now if learner_steps else None
        elif self._first is None:
            if now - self._trained_since >= self._warm_up_secs:
                self._first = (now, env_steps, learner_steps)
        elif self._last is None and now - self._first[0] >= self._secs:
            self._last = (now, env_steps, learner_steps)

    def record(self, system: str) -> dict[str, Any]:
        """What the peer prints. Raises RuntimeError unless the window is over."""
        if self._first is None or self._last is None:
            raise RuntimeError(f"{system} ended ahead of the end of its measurement")
        (begin, *before), (end, *after) = self._first, self._last
        return {
            "system": system,
            "begin": begin,
            "end": end,
            "env_steps": after[0] - before[0],
            "learner_steps": after[1] - before[1],
        }
