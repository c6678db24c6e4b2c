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
from distrl.core.nests import map_nest, unflattener
from distrl.core.promises import Outcome
from distrl.core.specs import ArraySpec, Nest, named_leaves, validate
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
        self._layout: _Layout | None = None
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
        layout = self._layout or self._fix_layout(nest)
        call = _Call(layout, *layout.leaves_of(nest, self._max_rows))
        with self._lock:
            if self._closed:
                raise self._closed_error()
            self._waiting.add(call)
            self._calls.put(call)
        try:
            outcome = call.reply.get(timeout=self._call_secs)
        except Empty:
            late = f"{self._name}: no answer within {self._call_secs} s"
            raise TimeoutError(late) from None
        finally:
            with self._lock:
                self._waiting.discard(call)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

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

    def _fix_layout(self, nest: Nest) -> _Layout:
        """The layout of the first call, or of the one that has come before."""
        with self._lock:
            if self._layout is None:
                layout = _Layout(nest)
                layout.leaves_of(nest, self._max_rows)
                self._layout = layout
            return self._layout

    def _shut(self, cause: BaseException | None) -> None:
        """Refuses calls from now on, also those that wait."""
        with self._lock:
            if not self._closed:
                self._closed, self._cause = True, cause
            for call in self._waiting:
                call.reply.put(Outcome(error=self._closed_error()))

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
        _check_outputs(leaves, outputs, size)
        batches, total_calls, rows, waited = self._totals
        waited += sum(now - call.began for call in calls)
        self._totals = batches + 1, total_calls + len(calls), rows + size, waited
        start = 0
        for call in calls:
            own = [leaf[start : start + call.rows] for leaf in leaves]
            call.reply.put(Outcome(optree.tree_unflatten(structure, own)))
            start += call.rows


class _Call:
    """Rows that wait for their answer."""

    __slots__ = ("layout", "leaves", "rows", "began", "reply")

    def __init__(self, layout: _Layout, leaves: list[np.ndarray], rows: int):
        self.layout, self.leaves, self.rows = layout, leaves, rows
        self.began = time.monotonic()
        # The first outcome counts; another may follow when the batcher is closed.
        self.reply: SimpleQueue[Outcome] = SimpleQueue()


class _Layout:
    """What all calls look like: the first one."""

    def __init__(self, nest: Nest):
        """Raises ValueError, naming the leaf, when one is not an array of rows."""
        named = named_leaves(nest)
        if not named:
            raise ValueError(f"batched call: expected arrays, got {nest!r}")
        for name, leaf in named:
            if not isinstance(leaf, np.ndarray) or not leaf.ndim:
                raise _wrong("batched call", name, "an array of rows", repr(leaf))
        self._spec = map_nest(lambda a: ArraySpec(a.shape[1:], a.dtype.name), nest)
        self._structure: Any = optree.tree_structure(nest)
        self._kinds = [(leaf.dtype, leaf.ndim, leaf.shape[1:]) for _, leaf in named]
        self.nest = unflattener(self._spec)

    def leaves_of(self, nest: Nest, max_rows: int) -> tuple[list[np.ndarray], int]:
        """The leaves, and their number of rows; raises ValueError, naming the leaf."""
        try:
            leaves: list[Any] = self._structure.flatten_up_to(nest)
        except ValueError:
            leaves = []
        if not leaves or not all(map(_fits, leaves, self._kinds)):
            validate(self._spec, nest, 1, "batched call")  # says what is wrong
        rows = len(leaves[0])
        for index, leaf in enumerate(leaves):
            if not 1 <= len(leaf) <= max_rows or len(leaf) != rows:
                name = named_leaves(self._spec)[index][0]
                expected = f"{rows} rows" if index else f"1 to {max_rows} rows"
                raise _wrong("batched call", name, expected, len(leaf))
        return leaves, rows


def _joined(calls: list[_Call]) -> Nest:
    """The batch, of the structure of a call."""
    columns: list[Any] = calls[0].leaves
    if len(calls) > 1:
        parts = zip(*[call.leaves for call in calls], strict=True)
        columns = [np.concatenate(part) for part in parts]
    return calls[0].layout.nest(columns)


def _fits(leaf: Any, kind: tuple[np.dtype, int, tuple[int, ...]]) -> bool:
    return (
        isinstance(leaf, np.ndarray) and (leaf.dtype, leaf.ndim, leaf.shape[1:]) == kind
    )


def _check_outputs(leaves: list[Any], outputs: Nest, size: int) -> None:
    """Raises ValueError, naming the leaf, unless all have the rows of the batch."""
    for index, leaf in enumerate(leaves):
        shape = np.shape(leaf)
        if shape[:1] != (size,):
            name = named_leaves(outputs)[index][0]
            got = shape[0] if shape else "no axis of rows"
            raise _wrong("output", name, f"{size} rows", got)


def _wrong(what: str, name: str, expected: str, got: Any) -> ValueError:
    return ValueError(f"{what}, leaf {name!r}: expected {expected}, got {got}")
