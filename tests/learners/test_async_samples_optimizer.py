"""The asynchronous samples optimizer: its bars, counts and parameters."""

from __future__ import annotations

import numpy as np
import pytest
from async_fakes import (
    CountingTrainer,
    HandWorker,
    IdSource,
    RegressionSource,
    RegressionTrainer,
    own_threads,
    regression,
    run_until,
    wait_until,
)

from distrl.core.child_process import ChildLimits
from distrl.learners.async_samples_optimizer import (
    AsyncSamplesOptimizer,
    AsyncSamplesSettings,
)
from distrl.learners.learner_thread import LearnerSettings
from distrl.learners.sample_workers import ProcessWorker, ThreadWorker

pytestmark = pytest.mark.timeout(60)
LIMITS = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=2.0)


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert not own_threads()


# The bars of the reference.


@pytest.mark.parametrize(
    ("num_devices", "learner"),
    [
        (1, {}),
        (2, {}),
        (2, {"num_loaders": 2, "num_loader_buffers": 2}),
        (1, {"num_loaders": 1, "num_loader_buffers": 1}),
    ],
)
def test_it_learns(num_devices, learner):
    trainer = RegressionTrainer(num_devices=num_devices)
    settings = AsyncSamplesSettings(learner=LearnerSettings(**learner))
    with AsyncSamplesOptimizer(regression(number=2), trainer, settings) as optimizer:
        stats = run_until(optimizer, sampled_rows=1000, trained_rows=50_000)
        assert stats["version"] >= 100 and stats["learner/loss"] < 1e-3
        assert stats["policy_lag_max"] is not None
        version, (weights,) = optimizer.parameters()
    np.testing.assert_allclose(weights, RegressionTrainer.true, atol=1e-2)
    assert version >= stats["version"]


def test_it_learns_from_processes():
    workers = [
        ProcessWorker(lambda i=i: RegressionSource(50, i), f"worker {i}", LIMITS)
        for i in range(2)
    ]
    trainer = RegressionTrainer()
    with AsyncSamplesOptimizer(workers, trainer, AsyncSamplesSettings()) as optimizer:
        run_until(optimizer, sampled_rows=1000, trained_rows=50_000)
    np.testing.assert_allclose(trainer.weights, RegressionTrainer.true, atol=1e-2)


def test_passes_are_trained_and_not_sampled():
    learner = LearnerSettings(num_passes=10, minibatch_buffer_size=10)
    settings = AsyncSamplesSettings(
        train_batch_size=50, fragment_rows=10, learner=learner
    )
    with AsyncSamplesOptimizer(regression(10), RegressionTrainer(), settings) as made:
        stats = run_until(made, sampled_rows=1000, trained_rows=10_000)
    assert stats["sampled_rows"] < 5000


def replaying(**learner):
    return AsyncSamplesSettings(
        train_batch_size=10,
        fragment_rows=10,
        replay_slots=100,
        replay_proportion=10.0,
        learner=LearnerSettings(**learner),
    )


def test_replay_is_trained_and_not_sampled():
    with AsyncSamplesOptimizer(
        regression(10), RegressionTrainer(), replaying()
    ) as made:
        stats = run_until(made, replayed_rows=8000, trained_rows=8000)
    assert stats["sampled_rows"] < 5000
    assert stats["replayed_rows"] == 10 * stats["sampled_rows"]


def test_replay_and_passes_multiply():
    learner = {"num_passes": 10, "minibatch_buffer_size": 10}
    trainer = RegressionTrainer()
    with AsyncSamplesOptimizer(regression(10), trainer, replaying(**learner)) as made:
        stats = run_until(made, trained_rows=40_000)
    assert stats["sampled_rows"] < 5000


@pytest.mark.parametrize("rows", [50, 25, 74])
def test_fragments_of_any_size_train_on_two_devices(rows):
    trainer = RegressionTrainer(num_devices=2)
    settings = AsyncSamplesSettings(train_batch_size=100, fragment_rows=rows)
    with AsyncSamplesOptimizer(regression(rows), trainer, settings) as optimizer:
        stats = run_until(optimizer, trained_rows=1000)
    assert stats["trained_rows"] == 100 * stats["updates"]


def test_replay_of_just_enough_slots_happens():
    """The reference accepted these numbers and never replayed."""
    settings = AsyncSamplesSettings(
        train_batch_size=100, fragment_rows=30, replay_slots=4, replay_proportion=1.0
    )
    with AsyncSamplesOptimizer(
        regression(30), RegressionTrainer(), settings
    ) as optimizer:
        run_until(optimizer, replayed_rows=1000)


# Counts.


@pytest.mark.parametrize("num_loaders", [0, 2])
@pytest.mark.parametrize("num_passes", [1, 3])
def test_every_row_is_counted_and_trained_as_often_as_said(num_loaders, num_passes):
    workers = [
        ThreadWorker(lambda i=i: IdSource(7 + i, 10**6 * i), f"worker {i}")
        for i in range(3)
    ]
    learner = LearnerSettings(
        num_passes=num_passes, initial_passes=num_passes, num_loaders=num_loaders
    )
    settings = AsyncSamplesSettings(train_batch_size=20, learner=learner)
    trainer = CountingTrainer()
    with AsyncSamplesOptimizer(workers, trainer, settings) as optimizer:
        counts = [optimizer.step() for _ in range(60)]
        batches = sum(count.num_batches for count in counts)
        wait_until(lambda: optimizer.stats()["updates"] == batches * num_passes)
        wait_until(
            lambda: optimizer.stats()["trained_rows"] == 20 * batches * num_passes
        )
        stats = optimizer.stats()
    assert stats["batches"] == batches
    sampled = sum(count.sampled_rows for count in counts)
    assert stats["sampled_rows"] == sampled == 20 * batches + stats["rows_waiting"]
    ids, passes = np.unique(np.concatenate(trainer.trained), return_counts=True)
    assert len(ids) == 20 * batches and set(passes) == {num_passes}


def test_stats_change_nothing_and_need_no_data():
    workers = [HandWorker("a"), HandWorker("b")]
    with AsyncSamplesOptimizer(
        workers, CountingTrainer(), AsyncSamplesSettings()
    ) as optimizer:
        stats = optimizer.stats()
        fractions = ("samples_wait_fraction", "learner_full_fraction")
        for name in fractions:
            assert stats.pop(name) == 0.0
        again = optimizer.stats()
        assert {k: v for k, v in again.items() if k not in fractions} == stats
        assert stats["healthy_workers"] == 2 and stats["samples_in_flight"] == 4
        assert stats["sampled_rows"] == stats["trained_rows"] == 0
        assert stats["policy_lag_mean"] is None


# Parameters.


@pytest.mark.parametrize("interval", [1, 3])
def test_workers_get_whole_parameters_of_rising_versions(interval):
    """IdSource fails on parameters that are not all equal, as an update makes them."""
    sources = [IdSource(5, 10**6 * i) for i in range(3)]
    workers = [
        ThreadWorker(lambda s=s: s, f"worker {i}") for i, s in enumerate(sources)
    ]
    settings = AsyncSamplesSettings(train_batch_size=5, broadcast_interval=interval)
    trainer = CountingTrainer()
    trainer.second = np.zeros(3)
    with AsyncSamplesOptimizer(workers, trainer, settings) as optimizer:
        stats = run_until(optimizer, version=300)
    sent = [source.versions for source in sources]
    assert all(versions == sorted(set(versions)) for versions in sent)
    assert all(versions[0] == 0 and versions[-1] > 100 for versions in sent)
    assert sum(map(len, sent)) <= stats["parameter_broadcasts"]


def test_versions_go_on_where_they_were():
    worker = HandWorker()
    with AsyncSamplesOptimizer(
        [worker], CountingTrainer(), AsyncSamplesSettings(), initial_version=41
    ) as optimizer:
        assert optimizer.parameters().version == 41
    assert worker.versions == [41]
