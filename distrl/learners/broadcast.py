"""Which parameters a worker gets."""

from __future__ import annotations

from collections.abc import Callable

from distrl.learners.trainer import Parameters


class Broadcast:
    """Takes new parameters from a learner once in `interval` requests, if there are.

    So at most `interval` workers are sent one version while there is a newer one, and a
    worker acts at most `interval` requests longer with what it has.
    """

    def __init__(
        self,
        newest_version: Callable[[], int],
        parameters: Callable[[], Parameters],
        interval: int = 1,
    ):
        if interval < 1:
            raise ValueError(f"broadcast_interval must be at least 1, got {interval}")
        self._newest_version, self._parameters = newest_version, parameters
        self._interval, self._served = interval, 0
        self._present: Parameters | None = None

    def serve(self) -> Parameters:
        """What the next request is to be answered under."""
        if self._present is None or self._due(self._present):
            self._present, self._served = self._parameters(), 0
        self._served += 1
        return self._present

    def _due(self, present: Parameters) -> bool:
        newer = self._newest_version() > present.version
        return newer and self._served >= self._interval
