"""The asynchronous samples optimizer: its failures and its end."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from async_fakes import (
    WAIT_SECS,
    Boom,
    CountingTrainer,
    HandWorker,
    IdSource,
    own_threads,
    regression,
    rows_of,
    run_until,
    wait_until,
)

from distrl.core.child_process import ChildLimits
from distrl.learners.async_samples_optimizer import (
    AsyncSamplesOptimizer,
    AsyncSamplesSettings,
    LearnerStarved,
)
from distrl.learners.learner_thread import LearnerSettings
from distrl.learners.sample_workers import ThreadWorker
from distrl.learners.worker_pool import WorkerFailed

pytestmark = pytest.mark.timeout(60)
LIMITS = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=2.0)


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert not own_threads()


# Failures of the learner.


def test_the_learners_error_ends_a_step_that_waits_for_samples():
    trainer = CountingTrainer(fails_at=1, gated=True)
    worker = HandWorker()
    settings = AsyncSamplesSettings(train_batch_size=1)
    optimizer = AsyncSamplesOptimizer([worker], trainer, settings)
    worker.answer(rows_of(0))
    optimizer.step()
    timer = threading.Timer(0.02, trainer.gate.release)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(Boom):
        optimizer.step()  # no sample is ever given
    assert time.monotonic() - begin < 2.0
    with pytest.raises(Boom):
        optimizer.step()
    timer.join()
    optimizer.stop()
    optimizer.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        optimizer.step()


def test_the_learners_error_ends_a_step_that_waits_for_room():
    trainer = CountingTrainer(fails_at=1, gated=True)
    workers = [ThreadWorker(IdSource, f"worker {i}") for i in range(2)]
    settings = AsyncSamplesSettings(
        train_batch_size=3, learner=LearnerSettings(queue_size=1)
    )
    optimizer = AsyncSamplesOptimizer(workers, trainer, settings)

    def fail_when_full():
        wait_until(lambda: optimizer._learner._queue._changed._waiters)
        trainer.gate.release()

    failing = threading.Thread(target=fail_when_full)
    failing.start()
    with pytest.raises(Boom):
        for _ in range(100):
            optimizer.step()
    failing.join(WAIT_SECS)
    optimizer.stop(2.0)


def test_a_loaders_error_is_raised_by_the_next_step():
    class Unloadable(CountingTrainer):
        def load(self, batch):
            raise Boom("in load")

    worker = HandWorker()
    settings = AsyncSamplesSettings(
        train_batch_size=1, learner=LearnerSettings(num_loaders=4)
    )
    optimizer = AsyncSamplesOptimizer([worker], Unloadable(), settings)
    worker.answer(rows_of(0))
    with pytest.raises(Boom):
        for _ in range(2):
            optimizer.step()
    optimizer.stop()


def test_an_error_that_no_step_raised_is_raised_by_stop():
    trainer = CountingTrainer(fails_at=1)
    worker = HandWorker()
    settings = AsyncSamplesSettings(train_batch_size=1)
    with pytest.raises(Boom):
        with AsyncSamplesOptimizer([worker], trainer, settings) as optimizer:
            worker.answer(rows_of(0))
            optimizer.step()
            wait_until(lambda: not optimizer._learner.alive)
    optimizer.stop()


def test_an_error_of_the_user_is_not_hidden():
    with pytest.raises(KeyError):
        with AsyncSamplesOptimizer(
            [HandWorker()], CountingTrainer(), AsyncSamplesSettings()
        ):
            raise KeyError("of the user")


def test_a_starved_learner_is_named():
    settings = AsyncSamplesSettings(train_batch_size=500, learner_queue_timeout=0.1)
    worker = HandWorker()
    with AsyncSamplesOptimizer([worker], CountingTrainer(), settings) as optimizer:
        worker.answer(rows_of(1, 2, 3))
        optimizer.step()
        begin = time.monotonic()
        with pytest.raises(LearnerStarved, match="0.1 s.* 3 rows of 500"):
            optimizer.step()
        assert 0.05 < time.monotonic() - begin < 2.0


def test_slow_fragments_count_together_towards_starvation():
    class Slow(IdSource):
        def sample(self):
            threading.Event().wait(0.03)
            return super().sample()

    settings = AsyncSamplesSettings(train_batch_size=10**6, learner_queue_timeout=0.2)
    workers = [ThreadWorker(Slow, "worker 0")]
    with AsyncSamplesOptimizer(workers, CountingTrainer(), settings) as optimizer:
        with pytest.raises(LearnerStarved):
            for _ in range(100):
                optimizer.step()


def test_each_batch_begins_the_wait_anew():
    settings = AsyncSamplesSettings(train_batch_size=1, learner_queue_timeout=0.8)
    worker = HandWorker()
    with AsyncSamplesOptimizer([worker], CountingTrainer(), settings) as optimizer:
        for number in range(5):
            timer = threading.Timer(0.2, worker.answer, [rows_of(number)])
            timer.start()
            assert optimizer.step().num_batches == 1
            timer.join()


def test_a_learner_without_room_is_waited_for_with_a_limit():
    trainer = CountingTrainer(gated=True)
    worker = HandWorker()
    settings = AsyncSamplesSettings(
        train_batch_size=1,
        max_in_flight=8,
        learner_queue_timeout=0.3,
        learner=LearnerSettings(queue_size=1),
    )
    with AsyncSamplesOptimizer([worker], trainer, settings) as optimizer:
        for number in range(4):
            worker.answer(rows_of(number))
        with pytest.raises(TimeoutError):
            optimizer.step()
        trainer.gate.release(4)
        optimizer.step()  # nothing is lost, nothing comes twice
        wait_until(lambda: len(trainer.trained) == 4)
    assert trainer.trained == [[0], [1], [2], [3]]


# Failures of workers.


def test_training_goes_on_without_a_worker_and_not_without_all():
    workers = [
        ThreadWorker(lambda: IdSource(4, 0, fails_at=40), "worker 0"),
        ThreadWorker(lambda: IdSource(4, 10**6, fails_at=3), "worker 1"),
    ]
    settings = AsyncSamplesSettings(train_batch_size=8, on_worker_failure="ignore")
    trainer = CountingTrainer()
    with AsyncSamplesOptimizer(workers, trainer, settings) as optimizer:
        while optimizer.stats()["healthy_workers"] == 2:
            optimizer.step()
        before = optimizer.stats()["sampled_rows"]
        with pytest.raises(WorkerFailed, match="worker 0"):
            while True:
                optimizer.step()
                assert optimizer.stats()["healthy_workers"] == 1
                assert optimizer.stats()["samples_in_flight"] <= 4
        stats = optimizer.stats()
        assert before < stats["sampled_rows"] <= 4 * (39 + 2)
        wait_until(lambda: optimizer.stats()["updates"] == stats["batches"])
    ids = np.concatenate(trainer.trained)
    assert len(set(ids)) == len(ids) == 8 * stats["batches"]


def test_a_failed_worker_is_raised():
    workers = [ThreadWorker(lambda: IdSource(fails_at=2), "worker 0")]
    with AsyncSamplesOptimizer(
        workers, CountingTrainer(), AsyncSamplesSettings()
    ) as optimizer:
        with pytest.raises(WorkerFailed, match="worker 0.*Boom"):
            for _ in range(5):
                optimizer.step()


def test_a_fragment_that_does_not_fit_is_named_and_not_taken_in():
    worker, trainer = HandWorker("worker 5"), CountingTrainer()
    settings = AsyncSamplesSettings(train_batch_size=2)
    with AsyncSamplesOptimizer([worker], trainer, settings) as optimizer:
        worker.answer(rows_of(0))
        worker.answer({"other": np.zeros(1)})
        with pytest.raises(ValueError, match="worker 5: .*other"):
            optimizer.step()
        assert len(worker.asked) == 1
        worker.answer(rows_of(1))
        assert optimizer.step() == (1, 0, 1)
        assert len(worker.asked) == 2
        wait_until(lambda: trainer.trained == [[0, 1]])


def test_restarted_workers_get_the_newest_parameters():
    sources = []

    def make():
        sources.append(IdSource(5, 10**6 * len(sources), fails_at=5))
        return sources[-1]

    settings = AsyncSamplesSettings(train_batch_size=5, on_worker_failure="restart")
    trainer = CountingTrainer()
    trainer.second = np.zeros(3)
    workers = [ThreadWorker(make, "worker 0")]

    def first_versions():
        return [source.versions[0] for source in sources if source.versions]

    def step_to_a_newer_version():
        optimizer.step()
        return first_versions()[-1] > first_versions()[1]

    with AsyncSamplesOptimizer(workers, trainer, settings) as optimizer:
        stats = run_until(optimizer, worker_restarts=4, sampled_rows=100)
        wait_until(step_to_a_newer_version)
    assert stats["healthy_workers"] == 1
    assert all(source.closed for source in sources)
    assert all(source.versions for source in sources[:-1])
    assert first_versions() == sorted(first_versions())
    ids = np.concatenate(trainer.trained)
    assert len(set(ids)) == len(ids)


# Beginnings and ends.


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"train_batch_size": 0}, "train_batch_size .* got 0"),
        ({"sequence_length": 0}, "sequence_length .* got 0"),
        ({"fragment_rows": 0}, "fragment_rows .* got 0"),
        ({"broadcast_interval": 0}, "broadcast_interval .* got 0"),
        ({"learner_queue_timeout": 0.0}, "learner_queue_timeout .* got 0.0"),
        ({"max_in_flight": 0}, "max_in_flight .* got 0"),
        ({"on_worker_failure": "hope"}, "on_worker_failure .* got 'hope'"),
        (
            {
                "train_batch_size": 100,
                "fragment_rows": 30,
                "replay_slots": 3,
                "replay_proportion": 1.0,
            },
            "4 stored .* 3 replay_slots",
        ),
    ],
)
def test_impossible_settings_are_named(settings, named):
    with pytest.raises(ValueError, match=named):
        AsyncSamplesSettings(**settings)


def test_a_bad_start_leaves_nothing():
    class NoParameters(CountingTrainer):
        def parameters(self):
            raise Boom("no parameters")

    class NoStart(HandWorker):
        def start(self):
            raise Boom("no start")

    settings = AsyncSamplesSettings(learner=LearnerSettings(num_loaders=2))
    with pytest.raises(ValueError, match="at least 1 worker"):
        AsyncSamplesOptimizer([], CountingTrainer(), settings)
    assert not own_threads()
    with pytest.raises(Boom, match="no parameters"):
        AsyncSamplesOptimizer(regression(), NoParameters(), settings)
    assert not own_threads()
    workers = [*regression(), NoStart()]
    with pytest.raises(Boom, match="no start"):
        AsyncSamplesOptimizer(workers, CountingTrainer(), settings)
    assert not own_threads()


@pytest.mark.parametrize("num_loaders", [0, 4])
def test_an_idle_one_stops_within_two_seconds(num_loaders):
    settings = AsyncSamplesSettings(learner=LearnerSettings(num_loaders=num_loaders))
    workers = [ThreadWorker(IdSource, "worker 0"), HandWorker()]
    optimizer = AsyncSamplesOptimizer(workers, CountingTrainer(), settings)
    begin = time.monotonic()
    optimizer.stop(2.0)
    assert time.monotonic() - begin < 2.0 and not own_threads()
    assert workers[1].stopped
    optimizer.stop(0.0)


def test_who_does_not_end_is_named():
    gate, entered = threading.Event(), threading.Event()

    class Stuck(IdSource):
        def sample(self):
            entered.set()
            assert gate.wait(WAIT_SECS)

    workers = [ThreadWorker(Stuck, "worker 9")]
    optimizer = AsyncSamplesOptimizer(
        workers, CountingTrainer(), AsyncSamplesSettings()
    )
    assert entered.wait(WAIT_SECS)
    with pytest.raises(TimeoutError, match="worker 9"):
        optimizer.stop(0.02)
    gate.set()
    workers[0].join(WAIT_SECS)


def test_a_step_that_waits_does_not_spin():
    """Half a second without samples costs next to no CPU, all threads together."""
    settings = AsyncSamplesSettings(learner_queue_timeout=0.5)
    with AsyncSamplesOptimizer(
        [HandWorker(), ThreadWorker(Idle, "worker 0")], CountingTrainer(), settings
    ) as optimizer:
        begin = time.process_time()
        with pytest.raises(LearnerStarved):
            optimizer.step()
        assert time.process_time() - begin < 0.1


class Idle(IdSource):
    """Samples nothing for as long as a test lasts, but ends."""

    def sample(self):
        threading.Event().wait(0.6)
        return super().sample()
