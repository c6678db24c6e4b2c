"""Samples from many workers, updates in one thread, neither waiting for the other."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distrl.core.counters import Counters
from distrl.core.errors import DistrlError
from distrl.core.specs import Nest
from distrl.learners.batch_assembly import BatchAssembler, num_rows
from distrl.learners.broadcast import Broadcast
from distrl.learners.fragment_replay import FragmentReplay, check_replay
from distrl.learners.learner_thread import LearnerSettings, LearnerThread
from distrl.learners.sample_workers import Worker
from distrl.learners.thread_ends import join_all
from distrl.learners.trainer import Parameters, Trainer
from distrl.learners.worker_pool import (
    Arrival,
    Member,
    OnFailure,
    WorkerPool,
    check_requests,
)
from distrl.metrics.timers import WaitTimer


class LearnerStarved(DistrlError):
    """No batch came together for the learner within the limit."""


@dataclasses.dataclass(frozen=True)
class AsyncSamplesSettings:
    """How samples become batches. Raises ValueError for what cannot work.

    All sizes are in rows of the fragments' first axis.
    """

    train_batch_size: int = 500  # rounded up to whole sequences
    sequence_length: int = 1  # rows that stay together
    fragment_rows: int = 50  # what a worker is expected to return at once
    replay_slots: int = 0  # fragments; as many as make a batch are needed
    replay_proportion: float = 0.0  # mean number of old fragments with each new one
    max_in_flight: int = 2  # samples on their way in each worker
    broadcast_interval: int = 1  # fragments for which parameters are kept at least
    learner_queue_timeout: float = 300.0  # s, of any wait of `step`
    on_worker_failure: OnFailure = "raise"  # see WorkerPool
    max_worker_restarts: int = 3  # of each worker, since its last sample
    learner: LearnerSettings = LearnerSettings()

    def __post_init__(self) -> None:
        for name in (
            "train_batch_size",
            "sequence_length",
            "fragment_rows",
            "broadcast_interval",
        ):
            if getattr(self, name) < 1:
                number = getattr(self, name)
                raise ValueError(f"{name} must be at least 1, got {number}")
        if not self.learner_queue_timeout > 0:
            seconds = self.learner_queue_timeout
            raise ValueError(f"learner_queue_timeout must be above 0, got {seconds}")
        check_replay(self.replay_slots, self.replay_proportion, self.min_stored)
        check_requests(
            self.max_in_flight, self.on_worker_failure, self.max_worker_restarts
        )

    @property
    def min_stored(self) -> int:
        """Stored fragments at which replay begins: those of one batch."""
        return math.ceil(self.train_batch_size / self.fragment_rows)


class StepCounts(NamedTuple):
    """What a step of the optimizer moved."""

    sampled_rows: int  # of new fragments
    replayed_rows: int  # of old ones
    num_batches: int  # handed to the learner


class AsyncSamplesOptimizer:
    """Trains on what workers sample, as fast as both can.

        workers = [ProcessWorker(make_source, f"worker {i}") for i in range(4)]
        with AsyncSamplesOptimizer(workers, trainer, settings) as optimizer:
            while optimizer.stats()["trained_rows"] < 1e6:
                optimizer.step()

    workers ─ fragments ─► assembler (+ replay) ─ batches ─► queue ─► [loaders ─►]
    learner thread ─ parameters ─► workers. All queues are bounded: a slow learner stops
    the workers.

    Everything is checked before anything is started: what the constructor raises leaves
    no thread and no process. It starts the workers and ends them in `stop`. Use it from
    one thread.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        trainer: Trainer,
        settings: AsyncSamplesSettings,
        seed: int = 0,
        initial_version: int = 0,
    ):
        self._settings, self._limit = settings, settings.learner_queue_timeout
        self._pool = WorkerPool(
            workers,
            settings.max_in_flight,
            settings.on_worker_failure,
            settings.max_worker_restarts,
        )
        self._assembler = BatchAssembler(
            settings.train_batch_size, settings.sequence_length
        )
        self._replay = FragmentReplay(
            settings.replay_slots,
            settings.replay_proportion,
            settings.min_stored,
            np.random.default_rng(seed),
        )
        self._learner = LearnerThread(
            trainer, settings.learner, initial_version, self._pool.close
        )
        self._broadcast = Broadcast(
            lambda: self._learner.version,
            lambda: self._learner.parameters(self._limit),
            settings.broadcast_interval,
        )
        self._batches: deque[Nest] = deque()  # to hand over; survives an interrupt
        self._counters = Counters()
        self._timer = WaitTimer()  # "samples", "learner": what is waited for
        self._waited_before = 0.0  # for samples, until the newest batch
        self._raised: BaseException | None = None
        self._stopped = False
        self._start()

    def _start(self) -> None:
        try:
            self._learner.start()
            self._pool.start()
            self._refill()
        except BaseException:
            self.stop()
            raise

    def step(self) -> StepCounts:
        """Waits for a fragment and passes on all that have come by then.

        Raises the error of the learner or of a loader, WorkerFailed, LearnerStarved
        when waiting for samples has taken `learner_queue_timeout` s since the last
        batch, TimeoutError when the learner has no room for as long. Its waits end at
        once when the learner does. ValueError, naming the worker, for a fragment that
        does not fit the ones before. RuntimeError after `stop`.
        """
        if self._stopped:
            raise RuntimeError("step() of an AsyncSamplesOptimizer that was stopped")
        before = self._counts()
        try:
            self._hand_over()
            self._refill()
            self._pass_on(self._wait_for_samples())
            for _ in range(self._pool.num_arrived):
                self._pass_on(self._wait_for_samples())
        except BaseException as error:
            self._raised = error
            raise
        return StepCounts(*(a - b for a, b in zip(self._counts(), before, strict=True)))

    def _wait_for_samples(self) -> Arrival:
        remaining = self._limit - (self._timer.secs("samples") - self._waited_before)
        try:
            with self._timer.measure("samples"):
                return self._pool.take(max(0.0, remaining))
        except TimeoutError:
            rows, needed = self._assembler.rows_waiting, self._assembler.batch_rows
            raise LearnerStarved(
                f"no batch for the learner in {self._limit:.1f} s of waiting: {rows} "
                f"rows of {needed} came from {len(self._pool.members)} workers"
            ) from None

    def _pass_on(self, arrival: Arrival) -> None:
        member, fragment = arrival
        if fragment is not None:
            try:
                batches = self._assembler.add(fragment)
            except ValueError as error:
                raise ValueError(f"{member.worker.name}: {error}") from error
            self._deal(batches, "sampled_rows", fragment)
            self._replay_behind(fragment)
        self._fill(member)

    def _replay_behind(self, fragment: Nest) -> None:
        if not self._settings.replay_proportion:
            return
        self._replay.add(fragment)
        for old in self._replay.draw():
            self._deal(self._assembler.add(old), "replayed_rows", old)

    def _deal(self, batches: list[Nest], count: str, fragment: Nest) -> None:
        """Counts a fragment, and hands over what it completed."""
        self._batches.extend(batches)
        self._counters.add(count, num_rows(fragment))
        self._hand_over()

    def _hand_over(self) -> None:
        """Each batch once, also if this was interrupted."""
        while self._batches:
            with self._timer.measure("learner"):
                self._learner.put(self._batches[0], self._limit)
            self._batches.popleft()
            self._counters.add("batches")
            self._waited_before = self._timer.secs("samples")

    def _refill(self) -> None:
        for member in self._pool.idle():
            self._fill(member)

    def _fill(self, member: Member) -> None:
        if self._pool.fill(member, self._broadcast.serve()):
            self._counters.add("parameter_broadcasts")

    def _counts(self) -> tuple[int, int, int]:
        names = ("sampled_rows", "replayed_rows", "batches")
        sampled, replayed, batches = (int(self._counters.get(name)) for name in names)
        return sampled, replayed, batches

    def parameters(self) -> Parameters:
        """A copy of the parameters of now, between two updates."""
        return self._learner.parameters(self._limit)

    def stats(self) -> dict[str, float | None]:
        """Those of the LearnerThread, and totals of the samples. Changes nothing.

        `sampled_rows` are in batches, or `rows_waiting` for one. Fractions are those of
        the time since the start.
        """
        sampled, replayed, batches = self._counts()
        return {
            **self._learner.stats(),
            "sampled_rows": sampled,
            "replayed_rows": replayed,
            "batches": batches,
            "rows_waiting": self._assembler.rows_waiting,
            "parameter_broadcasts": self._counters.get("parameter_broadcasts"),
            "healthy_workers": len(self._pool.members),
            "worker_restarts": self._pool.restarts,
            "samples_in_flight": self._pool.num_in_flight,
            "samples_wait_fraction": self._timer.total_fraction("samples"),
            "learner_full_fraction": self._timer.total_fraction("learner"),
        }

    def stop(self, timeout: float = 10.0) -> None:
        """Ends workers, loaders and learner; what was not trained on is dropped.

        Waits `timeout` s (TimeoutError naming who still runs). Raises what ended the
        learner if no `step` has. A second call does nothing.
        """
        if self._stopped:
            return
        self._stopped = True
        self._pool.stop()
        self._learner.ask_to_stop()
        join_all([self._learner, self._pool], timeout)
        if self._raised is None:
            self._learner.check()

    def __enter__(self) -> AsyncSamplesOptimizer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is not None:
            self._raised = error
        self.stop()
