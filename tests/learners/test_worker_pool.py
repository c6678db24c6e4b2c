"""Requests in flight, failures of workers, and who gets which parameters."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from async_fakes import WAIT_SECS, Boom, HandWorker

from distrl.learners.broadcast import Broadcast
from distrl.learners.trainer import Parameters
from distrl.learners.worker_pool import WorkerFailed, WorkerPool

pytestmark = pytest.mark.timeout(60)
FIRST = Parameters(0, [np.zeros(1)])


def filled(number=2, **settings):
    workers = [HandWorker(f"hand {index}") for index in range(number)]
    pool = WorkerPool(workers, **settings)
    pool.start()
    for member in pool.members:
        pool.fill(member, FIRST)
    return pool, workers


def test_each_fragment_is_taken_once_and_in_flight_is_bounded():
    pool, workers = filled(max_in_flight=3)
    assert [len(worker.asked) for worker in workers] == [3, 3]
    generator, given, taken = np.random.default_rng(0), 0, []
    for _ in range(200):
        worker = workers[generator.integers(2)]
        for _ in range(generator.integers(1, 4)):
            if worker.asked:
                worker.answer(given)
                given += 1
        for _ in range(generator.integers(0, pool.num_arrived + 1)):
            arrival = pool.take(0.0)
            taken.append(arrival.fragment)
            if generator.random() < 0.9:
                pool.fill(arrival.member, FIRST)
        for member in pool.members if generator.random() < 0.1 else ():
            pool.fill(member, FIRST)
        assert all(len(member.in_flight) <= 3 for member in pool.members)
        assert pool.num_in_flight - pool.num_arrived == sum(
            len(worker.asked) for worker in workers
        )
    while pool.num_arrived:
        taken.append(pool.take(0.0).fragment)
    assert given > 100 and taken == list(range(given))
    with pytest.raises(TimeoutError):
        pool.take(0.0)


def test_a_failure_is_raised_and_names_the_worker():
    pool, workers = filled()
    workers[1].fail()
    with pytest.raises(WorkerFailed, match="hand 1 failed: Boom.*1 workers") as caught:
        pool.take(0.0)
    assert isinstance(caught.value.__cause__, Boom)
    workers[0].answer("healthy")
    assert pool.take(0.0).fragment == "healthy"


def test_an_ignored_worker_is_done_without_until_none_is_left():
    pool, workers = filled(on_failure="ignore")
    workers[0].answer("early")
    assert pool.take(0.0).fragment == "early"
    workers[1].fail()
    workers[1].answer("behind the failure")
    workers[0].answer("healthy")
    assert pool.take(0.0).fragment == "healthy"
    assert len(pool.members) == 1 and workers[1].stopped
    assert pool.num_in_flight == 0 and pool.num_arrived == 0
    pool.fill(pool.members[0], FIRST)
    workers[0].fail()
    with pytest.raises(WorkerFailed, match="hand 0"):
        pool.take(0.0)
    with pytest.raises(WorkerFailed, match="no worker is left"):
        pool.take(0.0)


def test_a_restarted_worker_begins_anew():
    pool, (worker,) = filled(1, on_failure="restart", max_restarts=2)
    worker.fail()
    worker.answer("of the old one")
    arrival = pool.take(0.0)
    assert arrival.fragment is None and worker.stopped and worker.successor.started
    assert pool.fill(arrival.member, FIRST)  # it knows nothing yet
    assert worker.successor.versions == [0] and len(worker.successor.asked) == 2
    worker.successor.answer("of the new one")
    assert pool.take(0.0).fragment == "of the new one"
    assert pool.restarts == 1


def test_restarts_in_a_row_are_limited():
    pool, (worker,) = filled(1, on_failure="restart", max_restarts=2)
    for round_ in range(4):
        worker.fail()
        worker.answer("lost")
        arrival = pool.take(0.0)
        pool.fill(arrival.member, FIRST)
        worker = worker.successor
        if round_ == 1:
            worker.answer("good")  # counts anew from here
            pool.fill(pool.take(0.0).member, FIRST)
    worker.fail()
    with pytest.raises(WorkerFailed):
        pool.take(0.0)
    assert pool.restarts == 4


def test_a_failure_to_take_is_woken():
    pool, _ = filled()
    waker = threading.Timer(0.02, pool.close, [Boom("the learner's")])
    waker.start()
    with pytest.raises(Boom):
        pool.take(WAIT_SECS)
    waker.join()


def test_old_and_new_workers_are_stopped():
    pool, (first, second) = filled(on_failure="restart")
    first.fail()
    first.ends = False
    pool.take(0.0)
    pool.stop()
    with pytest.raises(TimeoutError, match="hand 0"):
        pool.join(0.0)
    first.ends = True
    pool.join(0.0)
    for worker in (first, second, first.successor):
        assert worker.stopped and worker.joined
    assert pool.num_in_flight == 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_in_flight": 0}, "max_in_flight .* got 0"),
        ({"on_failure": "pray"}, "on_worker_failure .* got 'pray'"),
        ({"max_restarts": -1}, "max_worker_restarts .* got -1"),
    ],
)
def test_impossible_settings_are_named(settings, named):
    with pytest.raises(ValueError, match=named):
        WorkerPool([HandWorker()], **settings)
    with pytest.raises(ValueError, match="at least 1 worker"):
        WorkerPool([])
    worker = HandWorker("same")
    with pytest.raises(ValueError, match="twice.*same"):
        WorkerPool([worker, worker])


# Who gets which parameters.


class FakeLearner:
    """Its version is set; parameters that are fetched are counted."""

    def __init__(self):
        self.version, self.fetched = 0, 0

    def parameters(self):
        self.fetched += 1
        return Parameters(self.version, [np.zeros(1)])


@pytest.mark.parametrize("interval", [1, 2, 3, 5])
@pytest.mark.parametrize("num_workers", [1, 4])
def test_versions_that_workers_get(interval, num_workers):
    """Monotone for each, and at most `interval` get one that is not the newest."""
    learner = FakeLearner()
    broadcast = Broadcast(lambda: learner.version, learner.parameters, interval)
    pool, workers = filled(num_workers)
    generator = np.random.default_rng(interval)
    outdated: dict[int, int] = {}
    for _ in range(500):
        learner.version += int(generator.integers(0, 3) == 0)
        index = generator.integers(num_workers)
        worker = workers[index]
        worker.answer("fragment")
        arrival = pool.take(0.0)
        if pool.fill(arrival.member, broadcast.serve()):
            sent = worker.versions[-1]
            outdated[sent] = outdated.get(sent, 0) + (learner.version > sent)
    for worker in workers:
        assert worker.versions == sorted(set(worker.versions))
        assert len(worker.versions) > 10
    assert max(outdated.values()) <= interval
    assert learner.fetched <= 500 / interval + 1
    assert len(workers[0].asked) == 2


def test_the_interval_is_counted_across_requests_of_one_worker():
    learner = FakeLearner()
    broadcast = Broadcast(lambda: learner.version, learner.parameters, 5)
    served = []
    for _ in range(20):
        served.append(broadcast.serve().version)
        learner.version += 1
    assert served == [0] * 5 + [5] * 5 + [10] * 5 + [15] * 5


def test_parameters_are_fetched_only_if_there_are_newer_ones():
    learner = FakeLearner()
    broadcast = Broadcast(lambda: learner.version, learner.parameters)
    assert len({id(broadcast.serve()) for _ in range(20)}) == 1
    assert learner.fetched == 1
    learner.version = 3
    assert broadcast.serve().version == 3
    with pytest.raises(ValueError, match="broadcast_interval .* got 0"):
        Broadcast(lambda: 0, learner.parameters, 0)
