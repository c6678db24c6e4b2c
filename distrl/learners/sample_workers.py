"""Workers: where samples come from, each in a thread or a process of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

import numpy as np

from distrl.core.child_process import ChildLimits, ChildProcess, Promise, WaitStopped
from distrl.core.specs import Nest
from distrl.core.threads import StoppableThread
from distrl.learners.sample_requests import SampleRequests
from distrl.learners.thread_ends import join_all
from distrl.learners.trainer import Parameters


class Source(Protocol):
    """What samples; it may have a `close()`, which is called at the end."""

    def sample(self) -> Nest:
        """A fragment: arrays with rows on the first axis, for the caller to keep."""

    def set_parameters(self, version: int, parameters: list[np.ndarray]) -> None:
        """Of what is sampled from now on. The arrays are shared and read-only."""


class Worker(Protocol):
    """A source that works on its own. Calls never wait, `join` apart."""

    name: str

    def start(self) -> None:
        """Once only."""

    def request_sample(self) -> Future[Nest]:
        """The next sample; an error in it is the end of the worker."""

    def set_parameters(self, parameters: Parameters) -> None:
        """For the next sample that is begun."""

    def stop(self) -> None:
        """Asks it to end; outstanding samples get an error."""

    def join(self, timeout: float) -> None:
        """Waits for the end, also of one never started; TimeoutError."""

    def renewed(self) -> Worker:
        """Another one made like this one, not started."""


class _Threaded:
    """A worker's thread in front of requests."""

    def __init__(self, name: str):
        self.name = name
        self._requests = SampleRequests()
        self._thread = StoppableThread(name, self._run, self._ended)
        self._started = False

    def start(self) -> None:
        self._started = True
        self._thread.start()

    def request_sample(self) -> Future[Nest]:
        return self._requests.sample()

    def set_parameters(self, parameters: Parameters) -> None:
        self._requests.set_parameters(parameters)

    def stop(self) -> None:
        self._thread.stop()
        self._requests.close()

    def join(self, timeout: float) -> None:
        if self._started:
            join_all([self._thread], timeout)

    def _run(self, stopping: threading.Event) -> None:
        raise NotImplementedError

    def _ended(self) -> None:
        self._requests.close(self._thread.error)


class ThreadWorker(_Threaded):
    """A source in this process: made, called and closed in a thread of its own.

    The threads of such workers share one interpreter with the learner's.
    """

    def __init__(self, factory: Callable[[], Source], name: str):
        super().__init__(name)
        self._factory = factory

    def renewed(self) -> ThreadWorker:
        return ThreadWorker(self._factory, self.name)

    def _run(self, stopping: threading.Event) -> None:
        source = self._factory()
        try:
            while (taken := self._requests.take(wait=True, most=1)) is not None:
                self._serve(source, taken.parameters, taken.samples)
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()

    def _serve(
        self,
        source: Source,
        parameters: Parameters | None,
        samples: list[Future[Nest]],
    ) -> None:
        if parameters is not None:
            source.set_parameters(*parameters)
        for future in samples:
            self._requests.settle(future, source.sample())


class ProcessWorker(_Threaded):
    """A source in a process of its own: made there by `factory`, by cloudpickle.

    The process begins its next sample while a thread here takes in the last one. A
    sample may take `limits.call_secs`. Raises TypeError for a factory that cannot be
    pickled.
    """

    def __init__(
        self,
        factory: Callable[[], Source],
        name: str,
        limits: ChildLimits = ChildLimits(),
    ):
        super().__init__(name)
        self._factory, self._limits = factory, limits
        stop = self._thread.stopping
        self._child = ChildProcess(factory, name, limits=limits, stop=stop)
        self._sent: deque[tuple[Future[Nest] | None, Promise]] = deque()

    @property
    def pid(self) -> int | None:
        """The process's id; None before it has one."""
        return self._child.pid

    def renewed(self) -> ProcessWorker:
        return ProcessWorker(self._factory, self.name, self._limits)

    def _run(self, stopping: threading.Event) -> None:
        with self._child as child:
            try:
                child.start()
                child.wait_ready()
                while self._exchange(child):
                    pass
            except WaitStopped:
                return

    def _exchange(self, child: ChildProcess) -> bool:
        """Sends what is asked for, and takes in one reply; False at the end."""
        taken = self._requests.take(wait=not self._sent)
        if taken is None:
            return False
        if taken.parameters is not None:
            self._sent.append((None, child.call("set_parameters", *taken.parameters)))
        self._sent += [(future, child.call("sample")) for future in taken.samples]
        future, promise = self._sent.popleft()
        sample = promise.result()
        if future is not None:
            self._requests.settle(future, sample)
        return True
