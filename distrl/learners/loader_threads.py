"""Threads that load batches while others are trained on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from distrl.core.closable_queue import ClosableQueue, QueueClosed
from distrl.core.threads import StoppableThread
from distrl.learners.thread_ends import join_all
from distrl.metrics.timers import WaitTimer

B = TypeVar("B")


class Ready(NamedTuple, Generic[B]):
    """A loaded batch, and the buffer that it occupies."""

    loaded: Any
    buffer: B


class LoaderThread:
    """Moves batches from `batches` over an idle buffer to `ready`, one at a time.

    `load(batch, buffer)` is run in the thread. It takes its buffer before its batch:
    what waits, waits in the one queue where it is seen and counted.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[Any, B], Any],
        batches: ClosableQueue[Any],
        idle: ClosableQueue[B],
        ready: ClosableQueue[Ready[B]],
        on_end: Callable[[], None],
    ):
        self._load, self._batches, self._idle, self._ready = load, batches, idle, ready
        self.timer = WaitTimer()  # "wait" for buffers and batches, "load"
        self.loads = 0
        self.thread = StoppableThread(name, self._run, on_end)

    def _run(self, stopping: threading.Event) -> None:
        try:
            while not stopping.is_set():
                with self.timer.measure("wait"):
                    buffer = self._idle.get()
                    batch = self._batches.get()
                with self.timer.measure("load"):
                    loaded = self._load(batch, buffer)
                self.loads += 1
                self._ready.put(Ready(loaded, buffer))
        except QueueClosed:
            return


class LoaderPool(Generic[B]):
    """`num_loaders` threads over a fixed set of buffers.

        ready = pool.get()
        train(ready.loaded)
        pool.release(ready.buffer)  # only now may it be loaded again

    An error in a loader ends them all, and is what `get` and `batches` raise from then
    on. Batches may overtake each other where there are several loaders.
    """

    def __init__(
        self,
        load: Callable[[Any, B], Any],
        batches: ClosableQueue[Any],
        buffers: Sequence[B],
        num_loaders: int,
    ):
        if num_loaders < 1:
            raise ValueError(f"num_loaders must be at least 1, got {num_loaders}")
        if not buffers:
            raise ValueError(f"loaders need at least 1 buffer, got {list(buffers)}")
        self._batches = batches
        self._idle: ClosableQueue[B] = ClosableQueue()
        self._ready: ClosableQueue[Ready[B]] = ClosableQueue(len(buffers))
        for buffer in buffers:
            self._idle.put(buffer)
        queues = (batches, self._idle, self._ready)
        self._loaders = [
            LoaderThread(f"loader {index}", load, *queues, self._loader_ended)
            for index in range(num_loaders)
        ]

    def start(self) -> None:
        for loader in self._loaders:
            loader.thread.start()

    def get(self) -> Ready[B]:
        """A loaded batch; waits until there is one, or the end.

        Raises what ended a loader, QueueClosed after `stop`.
        """
        return self._ready.get()

    def release(self, buffer: B) -> None:
        """Lets the buffer of a batch be loaded again."""
        self._idle.offer(buffer)

    @property
    def num_alive(self) -> int:
        """How many loaders run."""
        return sum(loader.thread.alive for loader in self._loaders)

    @property
    def load_secs(self) -> float:
        """Seconds spent in `load`, by all of them."""
        return sum(loader.timer.secs("load") for loader in self._loaders)

    @property
    def loads(self) -> int:
        """How many batches were loaded."""
        return sum(loader.loads for loader in self._loaders)

    def _loader_ended(self) -> None:
        errors = [loader.thread.error for loader in self._loaders]
        first = next((error for error in errors if error is not None), None)
        if first is not None:
            self._close(first)

    def _close(self, error: BaseException | None = None) -> None:
        for queue in (self._batches, self._idle, self._ready):
            queue.close(error)

    def stop(self) -> None:
        """Ends the loaders, and the queue of batches; does not wait."""
        for loader in self._loaders:
            loader.thread.stop()
        self._close()

    def join(self, timeout: float) -> None:
        """Waits for the ends of all; TimeoutError naming those that still run."""
        join_all([loader.thread for loader in self._loaders], timeout)
