"""Loaders: their buffers, their ends, their errors."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from async_fakes import WAIT_SECS, Boom, own_threads, wait_until

from distrl.core.closable_queue import ClosableQueue, QueueClosed
from distrl.learners.loader_threads import LoaderPool
from distrl.learners.minibatch_buffer import MinibatchBuffer

pytestmark = pytest.mark.timeout(60)


def copying(batch, buffer):
    """Loads in two halves, between which others may run."""
    half = len(buffer) // 2
    buffer[:half] = batch[:half]
    time.sleep(0)
    buffer[half:] = batch[half:]
    return buffer


@pytest.fixture
def make_pool():
    pools = []

    def make(load, num_buffers=4, num_loaders=4, queue_size=16, shape=64):
        batches: ClosableQueue = ClosableQueue(queue_size)
        buffers = [np.full(shape, -1.0) for _ in range(num_buffers)]
        pools.append(LoaderPool(load, batches, buffers, num_loaders))
        pools[-1].start()
        return pools[-1], batches

    yield make
    for pool in pools:
        pool.stop()
        pool.join(5)


def test_every_update_sees_one_batch(make_pool):
    """The owner frees a buffer behind its last pass, while four loaders want it."""
    pool, batches = make_pool(copying)
    feeder = threading.Thread(
        target=lambda: [batches.put(np.full(64, float(i))) for i in range(1000)]
    )
    feeder.start()
    passes = MinibatchBuffer(pool.get, size=4, num_passes=2, initial_passes=2)
    seen: list[float] = []
    for _ in range(2000):
        ready, released = passes.get()
        value = ready.loaded[0]
        for _ in range(3):
            assert (ready.loaded == value).all()
            time.sleep(0)
        seen.append(value)
        if released:
            pool.release(ready.buffer)
    feeder.join(WAIT_SECS)
    assert sorted(seen) == sorted([float(i) for i in range(1000)] * 2)
    assert pool.loads == 1000 and pool.load_secs > 0


def test_no_more_batches_are_loaded_than_there_are_buffers(make_pool):
    loaded = []
    pool, batches = make_pool(lambda batch, buffer: loaded.append(batch), 2, 4)
    for number in range(6):
        batches.put(number)
    first = pool.get()
    pool.get()
    wait_until(lambda: pool.num_alive == 4)
    assert sorted(loaded) == [0, 1] and len(batches) == 4
    pool.release(first.buffer)
    pool.get()
    assert sorted(loaded) == [0, 1, 2] and len(batches) == 3


def test_loaders_work_side_by_side(make_pool):
    together = threading.Barrier(3)
    pool, batches = make_pool(lambda batch, buffer: together.wait(WAIT_SECS), 3, 3)
    for number in range(3):
        batches.put(number)
    for _ in range(3):
        pool.get()


def test_an_error_in_any_loader_is_everybodys(make_pool):
    def load(batch, buffer):
        if batch == "bad":
            raise Boom("in load")
        return batch

    pool, batches = make_pool(load, queue_size=2)
    batches.put("good")
    assert pool.get().loaded == "good"
    assert pool.num_alive == 4
    batches.put("bad")
    with pytest.raises(Boom):
        pool.get()  # waits for it
    with pytest.raises(Boom):
        for _ in range(3):
            batches.put("more", timeout=WAIT_SECS)
    wait_until(lambda: pool.num_alive == 0)


@pytest.mark.parametrize("num_batches", [0, 3, 10])
def test_idle_and_waiting_loaders_end(make_pool, num_batches):
    """Without batches, without room for what is loaded, without buffers."""
    pool, batches = make_pool(lambda batch, buffer: batch, 2, 4)
    for number in range(num_batches):
        batches.put(number)
    begin = time.monotonic()
    pool.stop()
    pool.join(2)
    assert time.monotonic() - begin < 2 and pool.num_alive == 0
    assert not own_threads()
    with pytest.raises(QueueClosed):
        pool.get()
    pool.stop()
    pool.join(0)


def test_a_loader_that_does_not_end_is_named(make_pool):
    gate = threading.Event()
    entered = threading.Event()

    def load(batch, buffer):
        entered.set()
        assert gate.wait(WAIT_SECS)

    pool, batches = make_pool(load, 1, 1)
    batches.put(0)
    assert entered.wait(WAIT_SECS)
    pool.stop()
    with pytest.raises(TimeoutError, match="loader 0"):
        pool.join(0.02)
    gate.set()
    pool.join(WAIT_SECS)


def test_impossible_numbers_are_named():
    with pytest.raises(ValueError, match="num_loaders .* got 0"):
        LoaderPool(copying, ClosableQueue(1), [1], 0)
    with pytest.raises(ValueError, match="at least 1 buffer"):
        LoaderPool(copying, ClosableQueue(1), [], 1)
    with pytest.raises(ValueError, match="capacity .* got 0"):
        ClosableQueue(0)
