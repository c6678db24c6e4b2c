"""One function for many threads, called on batches of their rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import optree

from distrl.core.errors import DistrlError
from distrl.core.promises import Outcome
from distrl.core.row_layout import RowLayout, check_rows
from distrl.core.specs import Nest
from distrl.core.threads import StoppableThread


class BatcherClosed(DistrlError):
    """The batcher was closed, or its function failed: that error is the cause."""


class BatchingStatistics(NamedTuple):
    """What a batcher has done so far; the means are 0 before its first batch."""

    batches: int
    calls: int
    rows: int
    mean_batch_size: float  # rows
    mean_wait_secs: float  # from a call until its batch was complete
    num_waiting: int  # calls without an answer, now


class DynamicBatcher:
    """A function of rows that many threads call, and that runs once for all of them.

        batcher = DynamicBatcher(policy, min_batch_size=32, max_batch_size=64)
        action = batcher(observation)  # in any thread: own rows in, own rows out
        batcher.close()

    A call brings a nest of arrays with n >= 1 rows on their first axes. They stay
    together and in order: a batch is made of whole calls, in the order in which they
    came. `function` gets it, one batch at a time, in a thread of its own. What it
    returns, a nest of arrays with as many rows, is cut into views for the callers.

    A batch runs once it has `min_batch_size` rows, the first of its calls has waited
    `timeout_secs`, or the next call would take it above `max_batch_size`. Calls that
    wait by then come along while they fit. A minimum of 1 never waits: calls gather
    while a batch runs. All rows of threads that call in step make the largest batches.

    An error of the function, also the ValueError for an output with another number of
    rows, ends the batcher: all calls that wait, and all later ones, raise BatcherClosed
    with that error as the cause.
    """

    def __init__(
        self,
        function: Callable[[Nest], Nest],
        min_batch_size: int = 1,
        max_batch_size: int = 1024,
        timeout_secs: float = 0.01,
        call_timeout_secs: float = 60.0,
        name: str = "batcher",
    ):
        """Starts the thread called `name`; `call_timeout_secs` bounds each call.

        Raises ValueError unless 1 <= min_batch_size <= max_batch_size and
        0 <= timeout_secs < call_timeout_secs.
        """
        if not 1 <= min_batch_size <= max_batch_size:
            sizes = f"{min_batch_size} and {max_batch_size}"
            raise ValueError(f"expected 1 <= min <= max_batch_size, got {sizes}")
        if not 0 <= timeout_secs < call_timeout_secs <= threading.TIMEOUT_MAX:
            secs = f"{timeout_secs} and {call_timeout_secs}"
            raise ValueError(f"expected 0 <= timeout < call_timeout_secs, got {secs}")
        self._function, self._name = function, name
        self._min_rows, self._max_rows = min_batch_size, max_batch_size
        self._timeout_secs, self._call_secs = timeout_secs, call_timeout_secs
        self._layout: RowLayout | None = None
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()  # None: look up
        self._held: _Call | None = None  # it did not fit into the batch before
        self._totals = (0, 0, 0, 0.0)  # batches, calls, rows, seconds waited
        self._lock = threading.Lock()  # for the three below
        self._waiting: set[_Call] = set()
        self._closed = False
        self._cause: BaseException | None = None
        self._ended = threading.Event()
        self._runner = StoppableThread(name, self._serve, self._end).start()

    def __call__(self, nest: Nest) -> Nest:
        """What the function makes of these rows: leaves `[n, ...]` in and out.

        Raises ValueError, naming the leaf, for more than `max_batch_size` rows, none,
        or leaves unlike those of the first call in structure, dtype or trailing shape:
        that call alone has failed. Raises BatcherClosed, and TimeoutError behind
        `call_timeout_secs`.
        """
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        call = self._submit(nest, outcomes.put)
        try:
            outcome = outcomes.get(timeout=self._call_secs)
        except Empty:
            self._settle([call])
            late = f"{self._name}: no answer within {self._call_secs} s"
            raise TimeoutError(late) from None
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def submit(self, nest: Nest, reply: Callable[[Outcome], None]) -> None:
        """A call that does not wait: `reply` gets what becomes of it.

        It is called once, in the batcher's thread or in that which closes the batcher;
        what it raises ends the batcher. Raises as a call does.
        """
        self._submit(nest, reply)

    def _submit(self, nest: Nest, reply: Callable[[Outcome], None]) -> _Call:
        layout = self._layout or self._fix_layout(nest)
        call = _Call(layout, *layout.leaves_of(nest, self._max_rows), reply)
        with self._lock:
            if self._closed:
                raise self._closed_error()
            self._waiting.add(call)
            self._calls.put(call)
        return call

    def _settle(self, calls: list[_Call]) -> set[_Call]:
        """Nobody waits for these any more; those that were waited for."""
        with self._lock:
            waited_for = self._waiting.intersection(calls)
            self._waiting -= waited_for
        return waited_for

    @property
    def statistics(self) -> BatchingStatistics:
        """Counts and means since the start; looking changes nothing."""
        batches, calls, rows, waited = self._totals
        size, wait = rows / max(batches, 1), waited / max(calls, 1)
        return BatchingStatistics(batches, calls, rows, size, wait, len(self._waiting))

    def close(self, timeout_secs: float = 10.0) -> None:
        """Ends the thread; calls that wait raise BatcherClosed at once.

        Raises TimeoutError when the function has not returned within `timeout_secs`,
        but not what it raised. Not for the function itself to call.
        """
        self._runner.stop()
        self._shut(None)
        self._calls.put(None)
        if not self._ended.wait(timeout_secs):
            raise TimeoutError(
                f"{self._name}: the function did not return within {timeout_secs} s"
            )

    def _fix_layout(self, nest: Nest) -> RowLayout:
        """The layout of the first call, or of the one that has come before."""
        with self._lock:
            if self._layout is None:
                layout = RowLayout(nest)
                layout.leaves_of(nest, self._max_rows)
                self._layout = layout
            return self._layout

    def _shut(self, cause: BaseException | None) -> None:
        """Refuses calls from now on, also those that wait."""
        with self._lock:
            if not self._closed:
                self._closed, self._cause = True, cause
            waiting = list(self._waiting)
            self._waiting.clear()
        for call in waiting:
            call.reply(Outcome(error=self._closed_error()))

    def _closed_error(self) -> BatcherClosed:
        """One for each caller: what is raised collects a traceback."""
        cause, text = self._cause, f"{self._name} is closed"
        if cause is not None:
            text += f", because its function raised {type(cause).__name__}: {cause}"
        error = BatcherClosed(text)
        error.__cause__ = cause
        return error

    # What follows runs in the batcher's thread.

    def _end(self) -> None:
        self._shut(self._runner.error)
        self._ended.set()

    def _serve(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            calls = self._next_batch()
            if calls and not stopping.is_set():
                self._answer(calls)

    def _next_batch(self) -> list[_Call]:
        """Calls that make a batch; too few, or none, when the batcher is stopping."""
        calls: list[_Call] = []
        rows = 0
        while rows < self._max_rows:
            call = self._next_call(calls, rows)
            if call is None:
                break
            if call not in self._waiting:  # it has given up
                continue
            if rows + call.rows > self._max_rows:
                self._held = call
                break
            calls.append(call)
            rows += call.rows
        return calls

    def _next_call(self, calls: list[_Call], rows: int) -> _Call | None:
        """The next one that comes in time for a batch of so many rows so far."""
        if self._held is not None:
            call, self._held = self._held, None
            return call
        if not calls:
            return self._calls.get()  # close() ends it
        enough = rows >= self._min_rows
        if enough and self._calls.empty():
            return None
        until = calls[0].began + self._timeout_secs
        secs = 0.0 if enough else max(0.0, until - time.monotonic())
        try:
            return self._calls.get(timeout=secs)
        except Empty:
            return None

    def _answer(self, calls: list[_Call]) -> None:
        now = time.monotonic()
        size = sum(call.rows for call in calls)
        outputs = self._function(_joined(calls))
        leaves, structure = optree.tree_flatten(outputs)
        check_rows(leaves, outputs, size)
        waited_for = self._settle(calls)
        batches, total_calls, rows, waited = self._totals
        waited += sum(now - call.began for call in calls)
        self._totals = batches + 1, total_calls + len(calls), rows + size, waited
        start = 0
        for call in calls:
            own = [leaf[start : start + call.rows] for leaf in leaves]
            start += call.rows
            if call in waited_for:
                call.reply(Outcome(optree.tree_unflatten(structure, own)))


class _Call:
    """Rows that wait for their answer."""

    __slots__ = ("layout", "leaves", "rows", "began", "reply")

    def __init__(
        self,
        layout: RowLayout,
        leaves: list[np.ndarray],
        rows: int,
        reply: Callable[[Outcome], None],
    ):
        self.layout, self.leaves, self.rows = layout, leaves, rows
        self.began, self.reply = time.monotonic(), reply


def _joined(calls: list[_Call]) -> Nest:
    """The batch, of the structure of a call."""
    columns: list[Any] = calls[0].leaves
    if len(calls) > 1:
        parts = zip(*[call.leaves for call in calls], strict=True)
        columns = [np.concatenate(part) for part in parts]
    return calls[0].layout.nest(columns)
