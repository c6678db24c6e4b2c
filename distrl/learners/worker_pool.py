"""Workers, what is asked of them, and what to do when one fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple, get_args

from absl import logging

from distrl.core.closable_queue import ClosableQueue
from distrl.core.errors import DistrlError
from distrl.core.specs import Nest
from distrl.core.threads import Deadline
from distrl.learners.sample_workers import Worker
from distrl.learners.thread_ends import join_all
from distrl.learners.trainer import Parameters

OnFailure = Literal["raise", "ignore", "restart"]


class WorkerFailed(DistrlError):
    """A worker raised what is the cause of this, and no other may do without it."""


@dataclasses.dataclass(eq=False)
class Member:
    """A worker's place. After a restart another worker is in it."""

    worker: Worker
    in_flight: set[Future[Nest]] = dataclasses.field(default_factory=set)
    version: int = -1  # of the parameters that it was sent last
    restarts: int = 0


class Arrival(NamedTuple):
    """A fragment, or None: the member was restarted and needs everything anew."""

    member: Member
    fragment: Nest | None


class WorkerPool:
    """Keeps up to `max_in_flight` samples on their way in each of some workers.

    `on_failure`: "raise" raises WorkerFailed; "ignore" goes on without the worker;
    "restart" puts a new one in its place, up to `max_restarts` times for each, and
    then goes on without. WorkerFailed is raised when none is left. Whatever was on its
    way in a worker that failed is dropped.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        max_in_flight: int = 2,
        on_failure: OnFailure = "raise",
        max_restarts: int = 3,
    ):
        check_pool(workers, max_in_flight, on_failure, max_restarts)
        self._max_in_flight, self._max_restarts = max_in_flight, max_restarts
        self._on_failure = on_failure
        self.members = [Member(worker) for worker in workers]
        self._retired: list[Worker] = []
        self.restarts = 0
        # Bounded by what is in flight, and by what fails at restarts.
        self._arrivals: ClosableQueue[tuple[Member, Future[Nest]]] = ClosableQueue()

    def start(self) -> None:
        for member in self.members:
            member.worker.start()

    @property
    def num_in_flight(self) -> int:
        """Samples that were asked for and not taken."""
        return sum(len(member.in_flight) for member in self.members)

    @property
    def num_arrived(self) -> int:
        """How many answers wait to be taken."""
        return len(self._arrivals)

    def fill(self, member: Member, parameters: Parameters) -> bool:
        """Asks for as many samples as may be on their way, under `parameters`.

        Whether the parameters were sent: only if they are newer than the last ones.
        """
        newer = parameters.version > member.version
        if newer:
            member.worker.set_parameters(parameters)
            member.version = parameters.version
        while len(member.in_flight) < self._max_in_flight:
            self._request(member)
        return newer

    def _request(self, member: Member) -> None:
        future = member.worker.request_sample()
        member.in_flight.add(future)
        future.add_done_callback(lambda done: self._arrive(member, done))

    def _arrive(self, member: Member, future: Future[Nest]) -> None:
        self._arrivals.offer((member, future))

    def idle(self) -> list[Member]:
        """Members with room for a request."""
        room = self._max_in_flight
        return [member for member in self.members if len(member.in_flight) < room]

    def take(self, timeout: float) -> Arrival:
        """The next fragment, or restart; each one once. Waits `timeout` s at most.

        Raises TimeoutError, WorkerFailed, or what `close` was given.
        """
        deadline = Deadline(timeout)
        while self.members:
            member, future = self._arrivals.get(deadline.remaining)
            if future not in member.in_flight:  # of a worker that was given up
                continue
            member.in_flight.remove(future)
            error = future.exception()
            if error is None:
                member.restarts = 0
                return Arrival(member, future.result())
            if self._replaced(member, error):
                return Arrival(member, None)
        raise WorkerFailed("no worker is left")

    def _replaced(self, member: Member, error: BaseException) -> bool:
        """Whether a failed worker has a successor; it has not if it may be missed."""
        name = member.worker.name
        member.worker.stop()
        member.in_flight.clear()
        if self._on_failure == "restart" and member.restarts < self._max_restarts:
            logging.warning("%s failed and is restarted: %r", name, error)
            self._restart(member)
            return True
        self.members.remove(member)
        self._retire(member.worker)
        if self._on_failure == "raise" or not self.members:
            left = f", {len(self.members)} workers are left"
            raise WorkerFailed(f"{name} failed: {error!r}{left}") from error
        logging.warning("%s failed and is given up: %r", name, error)
        return False

    def _restart(self, member: Member) -> None:
        self._retire(member.worker)
        member.worker = member.worker.renewed()
        member.version = -1
        member.restarts += 1
        self.restarts += 1
        member.worker.start()

    def _retire(self, worker: Worker) -> None:
        """Keeps who may still be ending, for `join`."""
        self._retired = [each for each in self._retired if not _has_ended(each)]
        self._retired.append(worker)

    def close(self, error: BaseException | None = None) -> None:
        """Wakes `take`, now and for ever, with `error`."""
        self._arrivals.close(error)

    def stop(self) -> None:
        """Asks all workers to end; does not wait."""
        self.close()
        for member in self.members:
            member.worker.stop()
            member.in_flight.clear()

    def join(self, timeout: float) -> None:
        """Waits for the ends of all workers; TimeoutError naming who is late."""
        workers: list[Any] = [member.worker for member in self.members]
        join_all(workers + self._retired, timeout)


def check_pool(
    workers: Sequence[Worker], max_in_flight: int, on_failure: str, max_restarts: int
) -> None:
    """Raises ValueError for what no WorkerPool can be made of."""
    if not workers:
        raise ValueError(f"expected at least 1 worker, got {list(workers)}")
    if len({id(worker) for worker in workers}) < len(workers):
        names = [worker.name for worker in workers]
        raise ValueError(f"the same worker is given twice: {names}")
    check_requests(max_in_flight, on_failure, max_restarts)


def check_requests(max_in_flight: int, on_failure: str, max_restarts: int) -> None:
    """Raises ValueError, naming the number or word that cannot be used."""
    if max_in_flight < 1:
        raise ValueError(f"max_in_flight must be at least 1, got {max_in_flight}")
    if on_failure not in get_args(OnFailure):
        choices = get_args(OnFailure)
        raise ValueError(
            f"on_worker_failure must be one of {choices}, got {on_failure!r}"
        )
    if max_restarts < 0:
        raise ValueError(f"max_worker_restarts must be at least 0, got {max_restarts}")


def _has_ended(worker: Worker) -> bool:
    try:
        worker.join(0.0)
    except TimeoutError:
        return False
    return True
