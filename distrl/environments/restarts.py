"""How often an environment that fails is made anew."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class RestartPolicy:
    """How often environments are made anew behind an error, in each process."""

    limit: int = 0  # restarts within the window; the next error is raised
    window_secs: float = 3600.0

    def __post_init__(self) -> None:
        if self.limit < 0 or not self.window_secs > 0:
            raise ValueError(
                "a RestartPolicy needs a limit of at least 0 and a window above 0 s, "
                f"got {self}"
            )


class RestartBudget:
    """Spends what a policy allows."""

    def __init__(
        self, policy: RestartPolicy, clock: Callable[[], float] = time.monotonic
    ):
        self._policy, self._clock = policy, clock
        self._spent: deque[float] = deque()

    def spend(self) -> bool:
        """Whether one more restart is allowed now; counts it if so."""
        now = self._clock()
        while self._spent and now - self._spent[0] >= self._policy.window_secs:
            self._spent.popleft()
        if len(self._spent) >= self._policy.limit:
            return False
        self._spent.append(now)
        return True
