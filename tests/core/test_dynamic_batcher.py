"""Many threads, one function: who is answered with what, when, and how it ends."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from child_objects import wait_until

from distrl.core import dynamic_batcher
from distrl.core.dynamic_batcher import BatcherClosed, DynamicBatcher
from distrl.core.errors import DistrlError

pytestmark = pytest.mark.timeout(60)

LONG = 30.0  # seconds that no test here waits


class Rows(NamedTuple):
    observation: Any
    core_state: Any = ()


def column(*values):
    return np.array(values, np.float32)


class Doubling:
    """Doubles, keeps what it got, and starts on a batch only when it is let."""

    def __init__(self):
        self.batches, self.threads = [], set()
        self.started, self.let = threading.Semaphore(0), threading.Event()
        self.let.set()

    def __call__(self, rows):
        self.batches.append(rows.tolist())
        self.threads.add(threading.current_thread().name)
        self.started.release()
        assert self.let.wait(LONG)
        return 2 * rows


@pytest.fixture
def pool():
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture
def new_batcher(pool):  # closed first: then no call in the pool waits
    with contextlib.ExitStack() as stack:

        def make(function, *sizes, **options):
            batcher = DynamicBatcher(function, *sizes, **options)
            stack.callback(batcher.close)
            return batcher

        yield make


@pytest.fixture
def busy(new_batcher, pool):
    """Makes a batcher that is kept busy with a call of as many zeros as it wants."""
    function = Doubling()

    def make(*sizes, **options):
        function.let.clear()
        batcher = new_batcher(function, *sizes, **options)
        first = pool.submit(batcher, column(*[0] * sizes[0]))
        assert function.started.acquire(timeout=LONG)
        return function, batcher, first

    yield make
    function.let.set()


def submit(pool, batcher, *calls):
    """Calls in this order: each waits, or has been answered, before the next one."""
    futures = []
    for call in calls:
        before = came(batcher)
        futures.append(pool.submit(batcher, call))
        wait_until(lambda before=before: came(batcher) > before, LONG, "it")
    return futures


def came(batcher):
    """The calls so far."""
    return batcher.statistics.calls + batcher.statistics.num_waiting


def results(futures):
    return [future.result(LONG).tolist() for future in futures]


def test_one_call(new_batcher):
    batcher = new_batcher(lambda nest: nest["a"] + nest["b"][:, None])
    result = batcher({"a": np.array([[1, 3]]), "b": np.array([2])})
    np.testing.assert_array_equal(result, [[3, 5]])
    assert batcher.statistics[:4] == (1, 1, 1, 1.0)


def test_two_calls_that_wait_make_a_batch(new_batcher, pool):
    sizes = []

    def add(nest):
        sizes.append(len(nest[0]))
        return nest[0] + nest[1]

    batcher = new_batcher(add, 2, 2, timeout_secs=LONG)
    calls = [(column(1), column(2)), (column(2), column(3))]
    futures = [pool.submit(batcher, call) for call in calls]
    assert results(futures) == [[3], [5]]
    assert sizes == [2]


@pytest.mark.parametrize("min_batch_size", [1, 8])
def test_ten_threads_of_200_calls(new_batcher, min_batch_size):
    function, start = Doubling(), threading.Barrier(10)
    batcher = new_batcher(function, min_batch_size, 9, timeout_secs=1e-3, name="b")

    def client(number):
        random = np.random.default_rng(number)
        start.wait(LONG)
        num_rows = 0
        for call in range(200):
            rows = np.arange(random.integers(1, 5)) + 10_000 * number + 10 * call
            np.testing.assert_array_equal(batcher(rows), 2 * rows)
            num_rows += len(rows)
        return num_rows

    with ThreadPoolExecutor(10) as clients:
        num_rows = sum(clients.map(client, range(10), timeout=LONG))
    statistics, sizes = batcher.statistics, [len(b) for b in function.batches]
    assert max(sizes) <= 9 and function.threads == {"b"}
    assert statistics[:3] == (len(sizes), 2000, num_rows)
    assert statistics.mean_batch_size == num_rows / len(sizes)
    assert statistics.num_waiting == 0
    if min_batch_size == 8:
        assert statistics.mean_batch_size > 4


def test_batches_are_whole_calls_in_their_order(busy, pool):
    function, batcher, _ = busy(1, 4)
    sizes, calls, row = [3, 2, 1, 4, 1, 1, 1, 1, 1], [], 1
    for size in sizes:
        calls.append(np.arange(row, row + size, dtype=np.float32))
        row += size
    futures = submit(pool, batcher, *calls)
    function.let.set()
    assert results(futures) == [(2 * call).tolist() for call in calls]
    expected = [[0], [1, 2, 3], [4, 5, 6], [7, 8, 9, 10], [11, 12, 13, 14], [15]]
    assert function.batches == expected


def test_five_calls_in_batches_of_two(busy, pool):
    function, batcher, first = busy(1, 2)
    futures = submit(pool, batcher, *[column(1.5)] * 5)
    function.let.set()
    assert results([first, *futures]) == [[0]] + [[3]] * 5
    assert [len(batch) for batch in function.batches] == [1, 2, 2, 1]


def test_a_lone_call_waits_for_company_so_long(new_batcher, pool):
    function = Doubling()
    batcher = new_batcher(function, 2, 8, timeout_secs=0.5)
    began = time.monotonic()
    batcher(column(1))
    assert 0.5 <= time.monotonic() - began < 10
    assert 0.5 <= batcher.statistics.mean_wait_secs < 10
    assert function.batches == [[1]]


def test_company_ends_the_wait(new_batcher, pool):
    function = Doubling()
    batcher = new_batcher(function, 2, 8, timeout_secs=LONG)
    began = time.monotonic()
    futures = submit(pool, batcher, column(1)) + [pool.submit(batcher, column(2))]
    assert results(futures) == [[2], [4]]
    assert time.monotonic() - began < LONG / 2
    assert function.batches == [[1, 2]]


def test_waiting_in_line_counts_as_waiting(busy, pool, monkeypatch):
    """Who has waited for a slow batch does not wait for company again."""
    began, ahead = time.monotonic(), [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0])
    monkeypatch.setattr(dynamic_batcher, "time", clock)
    function, batcher, first = busy(2, 8, timeout_secs=LONG)
    (second,) = submit(pool, batcher, column(1))
    ahead[0] = LONG
    function.let.set()
    assert results([first, second]) == [[0, 0], [2]]
    assert time.monotonic() - began < LONG / 2
    assert function.batches == [[0, 0], [1]]
    assert batcher.statistics.mean_wait_secs >= LONG / 2


def test_a_batch_that_cannot_grow_does_not_wait(new_batcher, pool):
    function = Doubling()
    batcher = new_batcher(function, 4, 5, timeout_secs=LONG)
    first, second = submit(pool, batcher, column(1, 2, 3), column(4, 5, 6))
    assert results([first]) == [[2, 4, 6]]
    assert not second.done() and function.batches == [[1, 2, 3]]
    assert batcher(column(7)).tolist() == [14]  # company for the second
    assert results([second]) == [[8, 10, 12]]


def test_nests_in_and_out(new_batcher, pool):
    """A recurrent policy's: states are named tuples, or nothing."""

    def policy(rows):
        assert isinstance(rows, Rows)
        total = rows.observation["x"] + rows.observation["y"].sum(-1)
        return Rows(total, (rows.core_state[0] + 1, ()))

    batcher = new_batcher(policy, 6, 6, timeout_secs=LONG)

    def call(first):
        x = np.arange(first, first + 2.0)
        states = np.full((2, 3), first, np.float32), ()
        observation = {"x": x, "y": np.ones((2, 4), np.uint8)}
        return batcher(Rows(observation, states))

    for first, result in zip((0, 10, 20), pool.map(call, (0, 10, 20)), strict=True):
        assert isinstance(result, Rows) and result.core_state[1] == ()
        assert result.observation.tolist() == [first + 4, first + 5]
        state = result.core_state[0]
        assert state.dtype == np.float32 and state.tolist() == [[first + 1] * 3] * 2


GOOD = {"x": np.zeros((2, 3), np.float32), "y": np.zeros(2, np.int64)}
BAD = {
    "too many rows": (
        {"x": np.zeros((5, 3), np.float32), "y": np.zeros(5, np.int64)},
        "leaf 'x': expected 1 to 4 rows, got 5",
    ),
    "no row": (
        {"x": np.zeros((0, 3), np.float32), "y": np.zeros(0, np.int64)},
        "leaf 'x': expected 1 to 4 rows, got 0",
    ),
    "unequal rows": (GOOD | {"y": np.zeros(3, np.int64)}, "'y': expected 2 rows.* 3"),
    "dtype": (GOOD | {"x": np.zeros((2, 3))}, r"'x': expected float32.* float64"),
    "shape": (GOOD | {"x": np.zeros((2, 4), np.float32)}, r"'x': expected .*\[2, 4\]"),
    "fewer axes": (GOOD | {"x": np.zeros(2, np.float32)}, r"'x'.*got float32\[2\]"),
    "no axis": (GOOD | {"y": np.array(1)}, r"leaf 'y'.*got int64\[\]"),
    "number": (GOOD | {"y": 1}, "leaf 'y'.*got int"),
    "nest for a leaf": (GOOD | {"y": (np.zeros(2), np.zeros(2))}, "leaf 'y'"),
    "missing": ({"x": GOOD["x"]}, r"expected leaves \['x', 'y'\], got \['x'\]"),
    "more": (GOOD | {"z": np.zeros(2)}, r"got \['x', 'y', 'z'\]"),
    "another nest": (np.zeros(2), r"expected leaves \['x', 'y'\], got \[''\]"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_call_that_does_not_fit_fails_alone(new_batcher, pool, kind):
    bad, message = BAD[kind]
    batcher = new_batcher(lambda nest: nest["y"] + 1, 4, 4, timeout_secs=LONG)
    (other,) = submit(pool, batcher, GOOD)
    with pytest.raises(ValueError, match=message):
        batcher(bad)
    assert batcher(GOOD).tolist() == [1, 1]
    assert results([other]) == [[1, 1]]
    assert batcher.statistics[:3] == (1, 2, 4)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ((np.zeros(2), 3.0), "leaf '1': expected an array of rows, got 3.0"),
        ((), r"expected arrays, got \(\)"),
        ((np.zeros(2), np.zeros(3)), "leaf '1': expected 2 rows, got 3"),
        (np.zeros(9), "leaf '': expected 1 to 4 rows, got 9"),
    ],
)
def test_a_first_call_that_is_refused_decides_nothing(new_batcher, bad, message):
    batcher = new_batcher(lambda rows: rows, 1, 4)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            batcher(bad)
    assert batcher(column(1)).tolist() == [1]


def test_byte_order_and_dict_order_do_not_matter(new_batcher):
    batcher = new_batcher(lambda nest: nest["a"] - nest["b"])
    for dtype in ("<f4", ">f4"):
        nest = {"b": np.ones(2, dtype), "a": np.full(2, 3, dtype)}
        assert batcher(nest).tolist() == [2, 2]
        assert batcher(dict(reversed(nest.items()))).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda rows: rows.sum(), "output, leaf '': expected 1 rows, got no axis"),
        (lambda rows: np.zeros(4), "output, leaf '': expected 1 rows, got 4"),
        (lambda rows: {"a": rows, "b": rows[:0]}, "leaf 'b': expected 1 rows, got 0"),
        (lambda rows: (rows, 1.0), "leaf '1': expected 1 rows, got no axis"),
    ],
)
def test_outputs_have_the_rows_of_the_batch(new_batcher, output, message):
    batcher = new_batcher(output)
    for _ in range(2):
        with pytest.raises(BatcherClosed, match=message) as caught:
            batcher(column(1))
        assert isinstance(caught.value.__cause__, ValueError)
    assert batcher.statistics.batches == 0


@pytest.mark.parametrize("kind", [RuntimeError, TimeoutError, SystemExit])
def test_an_error_reaches_all_calls_once_each(new_batcher, pool, kind):
    error, let = kind("out of memory"), threading.Event()

    def fail(rows):
        assert let.wait(LONG)
        raise error

    batcher = new_batcher(fail, 1, 2, name="actor 3")
    futures = submit(pool, batcher, *[column(1)] * 5)
    let.set()
    raised = [future.exception(LONG) for future in futures]
    for _ in range(3):
        with pytest.raises(DistrlError) as caught:
            batcher(column(1))
        raised.append(caught.value)
    text = f"actor 3 is closed, because its function raised {kind.__name__}"
    for each in raised:
        assert type(each) is BatcherClosed and each.__cause__ is error
        assert str(each) == f"{text}: out of memory"
    assert len(set(map(id, raised))) == len(raised)
    batcher.close()  # says nothing more


def test_close_ends_calls_that_wait_for_company(new_batcher, pool):
    function = Doubling()
    batcher = new_batcher(function, 9, 9, timeout_secs=LONG, name="actor 3")
    futures = submit(pool, batcher, *[column(1)] * 3)
    batcher.close()
    for future in futures:
        error = future.exception(LONG / 2)
        assert type(error) is BatcherClosed and str(error) == "actor 3 is closed"
        assert error.__cause__ is None
    with pytest.raises(BatcherClosed):
        batcher(column(1))
    batcher.close()
    assert function.batches == []


def test_close_ends_calls_that_are_worked_on(busy, pool):
    function, batcher, first = busy(1, 1)
    (second,) = submit(pool, batcher, column(1))
    with pytest.raises(TimeoutError, match=r"batcher: the function .* within 0\.05 s"):
        batcher.close(timeout_secs=0.05)
    for future in (first, second):  # the function still runs
        assert isinstance(future.exception(LONG / 2), BatcherClosed)
    function.let.set()
    batcher.close()
    assert function.batches == [[0]]


def test_an_error_behind_close_is_nobodys(new_batcher, pool):
    """A function may well fail when its owner ends: its session is closed."""
    let = threading.Event()

    def fail(rows):
        assert let.wait(LONG)
        raise RuntimeError("no session")

    batcher = new_batcher(fail)
    (first,) = submit(pool, batcher, column(1))
    closing = pool.submit(batcher.close)
    assert first.exception(LONG / 2).__cause__ is None
    let.set()
    closing.result(LONG)
    with pytest.raises(BatcherClosed, match="^batcher is closed$"):
        batcher(column(1))


def test_calls_and_close_at_once(pool):
    """Each call is answered or refused, whenever it comes."""
    for _ in range(50):
        batcher, start = (
            DynamicBatcher(lambda rows: 2 * rows, 3, 4),
            threading.Barrier(9),
        )

        def client(number, batcher=batcher, start=start):
            start.wait(LONG)
            with contextlib.suppress(BatcherClosed):
                while True:
                    assert batcher(column(number)).tolist() == [2 * number]

        futures = [pool.submit(client, number) for number in range(8)]
        start.wait(LONG)
        batcher.close()
        for future in futures:
            future.result(LONG)


def test_a_call_that_gives_up_is_left_out(busy, pool):
    function, batcher, first = busy(1, 4, timeout_secs=0.0, call_timeout_secs=0.5)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"batcher: no answer within 0\.5 s"):
        batcher(column(1))
    assert 0.5 <= time.monotonic() - began < 10
    assert isinstance(first.exception(LONG), TimeoutError)
    assert batcher.statistics.num_waiting == 0
    function.let.set()
    assert batcher(column(2)).tolist() == [4]
    assert function.batches == [[0], [2]]


def test_calls_that_do_not_wait_are_answered_once(busy):
    function, batcher, first = busy(1, 4)
    outcomes = SimpleQueue()
    for number in (1, 2, 3):
        batcher.submit(
            column(number), lambda outcome, n=number: outcomes.put((n, outcome))
        )
    assert batcher.statistics.num_waiting == 4
    function.let.set()
    answers = [outcomes.get(timeout=LONG) for _ in range(3)]
    assert [(n, o.value.tolist(), o.error) for n, o in answers] == [
        (n, [2 * n], None) for n in (1, 2, 3)
    ]
    batcher.close()
    first.result(LONG)
    assert outcomes.empty() and batcher.statistics.num_waiting == 0


def test_a_call_that_does_not_wait_hears_of_the_end_once(busy):
    """Also when its batch is under way, and comes back later."""
    function, batcher, first = busy(1, 4)
    outcomes = SimpleQueue()
    batcher.submit(column(1), outcomes.put)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    assert isinstance(outcomes.get(timeout=LONG).error, BatcherClosed)
    function.let.set()
    closing.join(LONG)
    assert isinstance(first.exception(LONG), BatcherClosed)
    assert outcomes.empty()
    with pytest.raises(BatcherClosed):
        batcher.submit(column(1), outcomes.put)


def test_a_reply_that_fails_ends_the_batcher(new_batcher):
    def reply(outcome):
        raise KeyError("nobody")

    batcher = new_batcher(lambda rows: rows)
    batcher.submit(column(1), reply)
    wait_until(lambda: not batcher._runner.alive, LONG, "the end")
    with pytest.raises(BatcherClosed) as raised:
        batcher(column(2))
    assert isinstance(raised.value.__cause__, KeyError)


def test_statistics(busy, pool):
    function, batcher, first = busy(1, 4)
    assert batcher.statistics == (0, 0, 0, 0.0, 0.0, 1)
    futures = submit(pool, batcher, column(1, 2), column(3), column(4, 5, 6))
    assert batcher.statistics.num_waiting == 4
    function.let.set()
    results([first, *futures])
    statistics = batcher.statistics
    assert statistics == batcher.statistics
    assert statistics[:4] == (3, 4, 7, 7 / 3)
    assert 0 < statistics.mean_wait_secs < LONG


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((0, 4), {}, "got 0 and 4"),
        ((5, 4), {}, "got 5 and 4"),
        ((1, 4), {"timeout_secs": -1.0}, r"got -1\.0 and 60\.0"),
        ((1, 4), {"timeout_secs": float("nan")}, "got nan"),
        ((1, 4), {"timeout_secs": 2.0, "call_timeout_secs": 2.0}, r"got 2\.0 and 2\.0"),
        ((1, 4), {"call_timeout_secs": float("inf")}, "and inf"),
    ],
)
def test_bad_limits_are_refused_and_start_nothing(sizes, options, message):
    before = threading.active_count()
    with pytest.raises(ValueError, match=message):
        DynamicBatcher(lambda rows: rows, *sizes, **options)
    assert threading.active_count() == before
