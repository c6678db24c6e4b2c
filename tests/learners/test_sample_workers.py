"""Sources in threads and in processes."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from functools import partial

import numpy as np
import psutil
import pytest
from async_fakes import WAIT_SECS, Boom, IdSource, own_threads
from simulated import Plays

from distrl.core.child_process import ChildDied, ChildLimits
from distrl.core.closable_queue import QueueClosed
from distrl.learners.sample_workers import ProcessWorker, ThreadWorker
from distrl.learners.trainer import Parameters

pytestmark = pytest.mark.timeout(60)
START_SECS = 60.0  # of a process that imports environments
LIMITS = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=2.0)


class Remote(IdSource):
    """Tells its process and the versions it was given; dies on demand."""

    def sample(self):
        if self.versions and self.versions[-1] == 666:
            os._exit(3)
        return {"pid": os.getpid(), "versions": list(self.versions), **super().sample()}


def parameters(version: int) -> Parameters:
    return Parameters(version, [np.zeros(2), np.zeros(1)])


@pytest.fixture(params=[ThreadWorker, ProcessWorker])
def make_worker(request):
    made = []

    def make(factory=Remote):
        extra = [LIMITS] if request.param is ProcessWorker else []
        made.append(request.param(factory, "worker 0", *extra))
        made[-1].start()
        return made[-1]

    yield make
    for worker in made:
        worker.stop()
        worker.join(WAIT_SECS)
        if isinstance(worker, ProcessWorker) and worker.pid is not None:
            with pytest.raises(ProcessLookupError):
                os.kill(worker.pid, 0)
    assert not own_threads()


def test_samples_come_in_order_under_the_newest_parameters(make_worker):
    worker = make_worker()
    for version in (1, 2):
        worker.set_parameters(parameters(version))
    futures = [worker.request_sample() for _ in range(3)]
    samples = [future.result(WAIT_SECS) for future in futures]
    ids = [sample["id"].tolist() for sample in samples]
    assert ids == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert samples[2]["versions"] == [2]  # version 1 was replaced on its way
    worker.set_parameters(parameters(5))
    assert worker.request_sample().result(WAIT_SECS)["versions"] == [2, 5]
    in_process = samples[0]["pid"] == os.getpid()
    assert in_process is isinstance(worker, ThreadWorker)


def test_an_error_in_a_sample_is_the_end(make_worker):
    worker = make_worker(lambda: Remote(fails_at=2))
    futures = [worker.request_sample() for _ in range(3)]
    assert futures[0].result(WAIT_SECS)["id"].tolist() == [0, 1, 2]
    for future in (*futures[1:], worker.request_sample()):
        with pytest.raises(Boom):
            future.result(WAIT_SECS)
    another = worker.renewed()
    another.start()
    try:
        found = another.request_sample().result(WAIT_SECS)
        assert found["id"].tolist() == [0, 1, 2]
    finally:
        another.stop()
        another.join(WAIT_SECS)


def test_an_error_in_the_constructor_is_that_of_the_first_sample(make_worker):
    def broken():
        raise Boom("in the constructor")

    with pytest.raises(Boom):
        make_worker(broken).request_sample().result(WAIT_SECS)


def test_an_idle_worker_ends_at_once(make_worker):
    worker = make_worker()
    worker.request_sample().result(WAIT_SECS)
    begin = time.monotonic()
    worker.stop()
    worker.join(2.0)
    assert time.monotonic() - begin < 2.0
    with pytest.raises(QueueClosed):
        worker.request_sample().result(0)


def test_a_process_that_dies_is_named():
    worker = ProcessWorker(Remote, "worker 7", LIMITS)
    worker.start()
    try:
        worker.set_parameters(parameters(666))
        with pytest.raises(ChildDied, match="worker 7.*3"):
            worker.request_sample().result(WAIT_SECS)
    finally:
        worker.stop()
        worker.join(WAIT_SECS)


def test_a_source_in_a_thread_is_closed_and_what_waits_is_settled():
    entered, gate = threading.Event(), threading.Event()

    class Slow(IdSource):
        def sample(self):
            entered.set()
            assert gate.wait(WAIT_SECS)
            return super().sample()

    source = Slow()
    worker = ThreadWorker(lambda: source, "worker 0")
    futures = [worker.request_sample() for _ in range(2)]
    worker.start()
    assert entered.wait(WAIT_SECS)
    worker.stop()
    for future in futures:
        with pytest.raises(QueueClosed):
            future.result(WAIT_SECS)
    with pytest.raises(TimeoutError, match="worker 0"):
        worker.join(0.01)
    gate.set()
    worker.join(WAIT_SECS)
    assert source.closed


def test_new_parameters_overtake_waiting_requests():
    entered, gate = threading.Semaphore(0), threading.Semaphore(0)

    class Slow(IdSource):
        def sample(self):
            entered.release()
            assert gate.acquire(timeout=WAIT_SECS)
            return list(self.versions)

    worker = ThreadWorker(Slow, "worker 0")
    futures = [worker.request_sample() for _ in range(2)]
    worker.start()
    try:
        assert entered.acquire(timeout=WAIT_SECS)
        worker.set_parameters(parameters(3))
        gate.release(2)
        assert [future.result(WAIT_SECS) for future in futures] == [[], [3]]
    finally:
        worker.stop()
        worker.join(WAIT_SECS)


def test_a_factory_that_cannot_travel_is_refused_before_anything_starts():
    lock = threading.Lock()
    with pytest.raises(TypeError, match="worker 0.*pickled"):
        ProcessWorker(lambda: lock, "worker 0")
    assert not own_threads()


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.timeout(120)
@pytest.mark.parametrize("end", ["stop", "error"])
@pytest.mark.parametrize(
    ("kind", "ends_by"),
    [(ThreadWorker, "close"), (ProcessWorker, "close"), (ProcessWorker, "hook")],
)
def test_environments_take_their_own_processes_along(kind, ends_by, end):
    """Whatever ends the worker. Hooks are those of a process, so not of a thread."""
    fails_at = 2 if end == "error" else None
    worker = kind(partial(Plays, ends_by, fails_at), "worker 0")
    worker.start()
    simulators = []
    try:
        simulators = worker.request_sample().result(START_SECS).tolist()
        assert len(simulators) == 2 and not any(map(is_gone, simulators))
        if end == "error":
            with pytest.raises(FloatingPointError):
                worker.request_sample().result(WAIT_SECS)
        else:
            worker.stop()
        worker.join(WAIT_SECS)
        assert all(map(is_gone, simulators))
    finally:
        worker.stop()
        worker.join(WAIT_SECS)
        for pid in simulators:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert not own_threads()
