"""The thread that trains."""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from distrl.core.closable_queue import ClosableQueue, QueueClosed
from distrl.core.counters import Counters
from distrl.core.specs import Nest
from distrl.core.threads import StoppableThread
from distrl.learners.loader_threads import LoaderPool, Ready
from distrl.learners.minibatch_buffer import MinibatchBuffer, check_passes
from distrl.learners.policy_lag import PolicyLag, acting_versions
from distrl.learners.thread_ends import join_all
from distrl.learners.trainer import Parameters, Trainer
from distrl.learners.update_gate import UpdateGate
from distrl.metrics.timers import WaitTimer

_QUEUE_WINDOW = 50  # takings from the queue whose sizes are averaged


@dataclasses.dataclass(frozen=True)
class LearnerSettings:
    """How batches become updates. Raises ValueError for what cannot work."""

    queue_size: int = 16  # batches that may wait; what waits gets stale
    num_passes: int = 1  # how often each batch is trained on
    initial_passes: int = 1  # of the first batch; see MinibatchBuffer
    minibatch_buffer_size: int = 1  # batches in turn
    num_loaders: int = 0  # threads that load; 0: the learner thread does it itself
    num_loader_buffers: int | None = None  # loaded batches; None: one more than in turn

    def __post_init__(self) -> None:
        if self.queue_size < 1:
            raise ValueError(f"queue_size must be at least 1, got {self.queue_size}")
        if self.num_loaders < 0:
            raise ValueError(f"num_loaders must be at least 0, got {self.num_loaders}")
        size = self.minibatch_buffer_size
        check_passes(size, self.num_passes, self.initial_passes)
        if self.num_loader_buffers is not None and self.num_loader_buffers < size:
            raise ValueError(
                f"num_loader_buffers must be at least minibatch_buffer_size = {size}, "
                f"or loaders and learner wait for each other, "
                f"got {self.num_loader_buffers}"
            )
        if self.num_loader_buffers is not None and not self.num_loaders:
            raise ValueError(
                f"num_loader_buffers is {self.num_loader_buffers} without num_loaders"
            )


class _Loaded(NamedTuple):
    """A batch as the trainer wants it, and the versions that acted in it."""

    batch: Any
    versions: np.ndarray | None


class LearnerThread:
    """Trains on what is put in, in a thread of its own.

        learner = LearnerThread(trainer, LearnerSettings(num_passes=2))
        learner.start()
        learner.put(batch, timeout=60.0)
        version, parameters = learner.parameters(timeout=60.0)
        learner.stop()

    Every update raises `version` by 1. What ends the thread, in the trainer or in a
    loader, is raised by `put`, `parameters` and `check`, also in a `put` that waits.
    `on_end(error)` is called in the thread when it has ended; None means by `stop`.
    """

    def __init__(
        self,
        trainer: Trainer,
        settings: LearnerSettings,
        initial_version: int = 0,
        on_end: Callable[[BaseException | None], None] = lambda error: None,
    ):
        self._trainer, self._on_end = trainer, on_end
        self._queue: ClosableQueue[Nest] = ClosableQueue(settings.queue_size)
        self._num_loaders = settings.num_loaders
        self._pool: LoaderPool[int] | None = None
        if settings.num_loaders:
            num_buffers = settings.num_loader_buffers
            if num_buffers is None:
                num_buffers = settings.minibatch_buffer_size + 1
            buffers = range(num_buffers)
            load = self._load_in_pool
            self._pool = LoaderPool(load, self._queue, buffers, settings.num_loaders)
        self._buffer = MinibatchBuffer(
            self._next_loaded,
            settings.minibatch_buffer_size,
            settings.num_passes,
            settings.initial_passes,
        )
        self._gate = UpdateGate(initial_version)
        self._timer = WaitTimer()  # "wait" for a batch, "load", "train"
        self._counters = Counters()
        self._lag = PolicyLag()
        self._queue_sizes: deque[int] = deque(maxlen=_QUEUE_WINDOW)
        self._metrics: dict[str, float] = {}
        self._thread = StoppableThread("learner", self._run, self._ended)
        self._started = False

    def start(self) -> LearnerThread:
        self._started = True
        if self._pool is not None:
            self._pool.start()
        self._thread.start()
        return self

    # Of the owner

    def put(self, batch: Nest, timeout: float) -> None:
        """Hands over a batch; waits `timeout` s at most while the queue is full.

        The batch belongs to the learner from then on. Raises TimeoutError, in which
        case it does not, what has ended the learner, or QueueClosed after `stop`.
        """
        self._queue.put(batch, timeout)

    @property
    def version(self) -> int:
        """Of the present parameters."""
        return self._gate.version

    def parameters(self, timeout: float) -> Parameters:
        """A copy of the parameters as they are between two updates.

        Waits for the end of an update, `timeout` s at most (TimeoutError). Raises what
        an update has raised.
        """
        with self._gate.read(timeout) as version:
            arrays = [np.array(each) for each in self._trainer.parameters()]
        for array in arrays:
            array.flags.writeable = False
        return Parameters(version, arrays)

    @property
    def alive(self) -> bool:
        """Whether it runs, with all its loaders."""
        loaders_alive = self.num_loaders_alive == self._num_loaders
        return self._thread.alive and loaders_alive

    @property
    def num_loaders_alive(self) -> int:
        """How many loaders run."""
        return 0 if self._pool is None else self._pool.num_alive

    def check(self) -> None:
        """Raises what ended the thread, if something did."""
        self._thread.check()

    def stats(self) -> dict[str, float | None]:
        """Totals, means and the newest metrics; no reading changes another.

        Seconds are those of a mean batch or update; None or 0 where there was none.
        """
        totals, timer = self._counters.snapshot(), self._timer
        updates = totals.get("updates", 0)
        lag, sizes = self._lag.read(), list(self._queue_sizes)
        if self._pool is None:
            load_secs, loads = timer.secs("load"), totals.get("loads", 0)
        else:
            load_secs, loads = self._pool.load_secs, self._pool.loads
        own: dict[str, float | None] = {
            "version": self.version,
            "updates": updates,
            "trained_rows": totals.get("trained_rows", 0),
            "policy_lag_mean": lag.mean,
            "policy_lag_max": lag.max,
            "learner_queue_mean": sum(sizes) / len(sizes) if sizes else None,
            "learner_queue_max": max(sizes) if sizes else None,
            "load_secs": load_secs / loads if loads else None,
            "train_secs": timer.secs("train") / updates if updates else None,
            "wait_secs": timer.secs("wait") / updates if updates else None,
            "learner_wait_fraction": timer.total_fraction("wait") if updates else 0.0,
        }
        return {**{f"learner/{k}": v for k, v in self._metrics.items()}, **own}

    def stop(self, timeout: float = 10.0) -> None:
        """Ends the thread and its loaders behind the update that runs.

        What waits is dropped. Waits `timeout` s for them (TimeoutError). What ended
        them before is not raised; a second call does nothing.
        """
        self.ask_to_stop()
        self.join(timeout)

    def ask_to_stop(self) -> None:
        """The same without waiting."""
        self._thread.stop()
        self._queue.close()
        if self._pool is not None:
            self._pool.stop()

    def join(self, timeout: float) -> None:
        """Waits for the end, `timeout` s at most (TimeoutError)."""
        if self._started:
            pools = [] if self._pool is None else [self._pool]
            join_all([self._thread, *pools], timeout)

    # Of the thread

    def _run(self, stopping: threading.Event) -> None:
        try:
            while not stopping.is_set():
                self._train_next()
        except QueueClosed:
            return

    def _train_next(self) -> None:
        item, released = self._buffer.get()
        loaded: _Loaded = item.loaded
        with self._gate.update(), self._timer.measure("train"):
            self._lag.add(self.version, loaded.versions)
            metrics: Mapping[str, float] = self._trainer.train(loaded.batch)
        self._counters.add("updates")
        self._counters.add("trained_rows", self._trainer.rows(loaded.batch))
        self._metrics = dict(metrics)
        if released and self._pool is not None:
            self._pool.release(item.buffer)

    def _next_loaded(self) -> Ready[int]:
        ready = self._take_loaded()
        self._queue_sizes.append(len(self._queue))  # what waits behind it
        return ready

    def _take_loaded(self) -> Ready[int]:
        if self._pool is not None:
            with self._timer.measure("wait"):
                return self._pool.get()
        with self._timer.measure("wait"):
            batch = self._queue.get()
        with self._timer.measure("load"):
            loaded = self._loaded(batch)
        self._counters.add("loads")
        return Ready(loaded, 0)

    def _load_in_pool(self, batch: Nest, buffer: int) -> _Loaded:
        return self._loaded(batch)

    def _loaded(self, batch: Nest) -> _Loaded:
        return _Loaded(self._trainer.load(batch), acting_versions(batch))

    def _ended(self) -> None:
        error = self._thread.error
        self._queue.close(error)
        if self._pool is not None:
            self._pool.stop()
        self._on_end(error)
