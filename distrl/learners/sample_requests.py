"""What a worker's thread is asked for, and what became of it."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import Any, NamedTuple

from distrl.core.closable_queue import QueueClosed
from distrl.learners.trainer import Parameters


class Taken(NamedTuple):
    """What the thread has to do, in this order."""

    parameters: Parameters | None  # the newest, if there are new ones
    samples: list[Future[Any]]


class SampleRequests:
    """Requests for samples, and the newest parameters, on their way to one thread.

    Parameters overtake the samples that still wait, and newer ones replace them: what
    is sampled next is sampled under the newest there are. Every future is settled: with
    a sample, or with what `close` was given.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Future[Any]] = deque()
        self._unsettled: set[Future[Any]] = set()
        self._parameters: Parameters | None = None
        self._closed: BaseException | None = None

    def sample(self) -> Future[Any]:
        """The future of one more sample."""
        future: Future[Any] = Future()
        with self._changed:
            if self._closed is None:
                self._unsettled.add(future)
                self._waiting.append(future)
                self._changed.notify_all()
                return future
        future.set_exception(self._closed)
        return future

    def set_parameters(self, parameters: Parameters) -> None:
        with self._changed:
            self._parameters = parameters

    def take(self, wait: bool, most: int | None = None) -> Taken | None:
        """What is asked for, `most` samples of it (None: all); None once closed.

        `wait`s for a sample, or the end.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed is not None:
                return None
            if not self._waiting:
                return Taken(None, [])
            number = len(self._waiting) if most is None else most
            samples = [self._waiting.popleft() for _ in range(number)]
            parameters, self._parameters = self._parameters, None
            return Taken(parameters, samples)

    def settle(self, future: Future[Any], sample: Any) -> None:
        """`future` has its sample, unless it was closed before."""
        with self._changed:
            if future not in self._unsettled:
                return
            self._unsettled.remove(future)
        future.set_result(sample)

    def close(self, error: BaseException | None = None) -> None:
        """Settles all that is not, and all to come, with `error`."""
        with self._changed:
            if self._closed is None:
                self._closed = error or QueueClosed("the worker was stopped")
            unsettled, self._unsettled = self._unsettled, set()
            self._waiting.clear()
            self._changed.notify_all()
        for future in unsettled:
            future.set_exception(self._closed)
