"""The learner thread: its queue, versions, counts and ends."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from async_fakes import (
    WAIT_SECS,
    Boom,
    CountingTrainer,
    own_threads,
    rows_of,
    wait_until,
)

from distrl.core.closable_queue import QueueClosed
from distrl.learners.learner_thread import LearnerSettings, LearnerThread

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def make_learner():
    made = []

    def make(trainer, on_end=lambda error: None, version=0, **settings):
        learner = LearnerThread(trainer, LearnerSettings(**settings), version, on_end)
        made.append((trainer, learner.start()))
        return learner

    yield make
    for trainer, learner in made:
        if hasattr(trainer, "gate"):
            trainer.gate.release(1000)
        learner.stop(WAIT_SECS)


@pytest.mark.parametrize("num_loaders", [0, 2])
def test_counts_are_exact(make_learner, num_loaders):
    trainer = CountingTrainer()
    learner = make_learner(
        trainer, num_passes=3, initial_passes=3, num_loaders=num_loaders
    )
    sizes = [1, 2, 3, 4]
    for size in sizes:
        learner.put(rows_of(*range(size)), WAIT_SECS)
    wait_until(lambda: learner.stats()["updates"] == 12)
    wait_until(lambda: learner.stats()["trained_rows"] == 3 * sum(sizes))
    assert learner.version == 12
    assert sorted(map(len, trainer.trained)) == sorted(sizes * 3)


def test_rows_are_those_that_the_trainer_used(make_learner):
    trainer = CountingTrainer()
    trainer.rows = lambda loaded: len(loaded["id"]) // 3 * 3
    learner = make_learner(trainer)
    learner.put(rows_of(*range(148)), WAIT_SECS)
    wait_until(lambda: learner.stats()["trained_rows"] == 147)


def test_stats_before_data_and_their_purity(make_learner):
    learner = make_learner(CountingTrainer())
    stats = learner.stats()
    assert stats == learner.stats()
    totals = {k: stats[k] for k in ("version", "updates", "trained_rows")}
    assert totals == {"version": 0, "updates": 0, "trained_rows": 0}
    unknown = ("policy_lag_mean", "policy_lag_max", "train_secs", "learner_queue_max")
    assert all(stats[name] is None for name in unknown)
    assert stats["learner_wait_fraction"] == 0.0


def test_times_of_load_train_and_wait(make_learner):
    learner = make_learner(CountingTrainer())
    learner.put(rows_of(5), WAIT_SECS)
    wait_until(lambda: learner.stats()["updates"] == 1)
    stats = learner.stats()
    for name in ("load_secs", "train_secs", "wait_secs"):
        assert 0 < stats[name] < WAIT_SECS
    assert 0 < stats["learner_wait_fraction"] <= 1
    wait_until(lambda: learner.stats()["learner/mean_id"] == 5.0)


def test_an_error_ends_a_put_that_waits(make_learner):
    trainer = CountingTrainer(fails_at=1, gated=True)
    ended = []
    learner = make_learner(trainer, ended.append, queue_size=1)
    learner.put(rows_of(0), WAIT_SECS)
    assert trainer.entered.acquire(timeout=WAIT_SECS)
    learner.put(rows_of(1), WAIT_SECS)  # it is full now
    raised = []

    def blocked_put():
        try:
            learner.put(rows_of(2), WAIT_SECS)
        except Boom as error:
            raised.append(error)

    putting = threading.Thread(target=blocked_put)
    putting.start()
    wait_until(lambda: learner._queue._changed._waiters)  # one waits for room
    trainer.gate.release()
    putting.join(2.0)
    assert not putting.is_alive() and len(raised) == 1
    for call in (
        lambda: learner.put(rows_of(3), WAIT_SECS),
        lambda: learner.parameters(WAIT_SECS),
        learner.check,
    ):
        with pytest.raises(Boom):
            call()
    assert not learner.alive and ended == raised
    learner.stop(2.0)  # does not raise what is known


def test_a_full_queue_is_waited_for_with_a_limit(make_learner):
    trainer = CountingTrainer(gated=True)
    learner = make_learner(trainer, queue_size=1)
    learner.put(rows_of(0), WAIT_SECS)
    assert trainer.entered.acquire(timeout=WAIT_SECS)
    learner.put(rows_of(1), WAIT_SECS)
    with pytest.raises(TimeoutError):
        learner.put(rows_of(2), 0.01)
    trainer.gate.release(2)
    wait_until(lambda: len(trainer.trained) == 2)
    assert trainer.trained == [[0], [1]]  # what was refused was not kept


@pytest.mark.parametrize("num_loaders", [0, 3])
def test_an_idle_learner_stops(make_learner, num_loaders):
    learner = make_learner(CountingTrainer(), num_loaders=num_loaders)
    wait_until(lambda: learner.alive)
    assert learner.num_loaders_alive == num_loaders
    begin = time.monotonic()
    learner.stop(2.0)
    assert time.monotonic() - begin < 2.0 and not own_threads()
    learner.stop(0.0)
    learner.check()
    with pytest.raises(QueueClosed):
        learner.put(rows_of(1), WAIT_SECS)


def test_one_that_was_never_started_stops():
    LearnerThread(CountingTrainer(), LearnerSettings(num_loaders=2)).stop(0.0)


def test_a_learner_that_does_not_end_is_named(make_learner):
    trainer = CountingTrainer(gated=True)
    learner = make_learner(trainer)
    learner.put(rows_of(0), WAIT_SECS)
    assert trainer.entered.acquire(timeout=WAIT_SECS)
    with pytest.raises(TimeoutError, match="learner"):
        learner.stop(0.02)


def test_an_error_of_a_loader_is_the_learners(make_learner):
    class Unloadable(CountingTrainer):
        def load(self, batch):
            if batch["id"][0] == 1:
                raise Boom("in load")
            return batch

    learner = make_learner(Unloadable(), num_loaders=4)
    learner.put(rows_of(0), WAIT_SECS)
    wait_until(lambda: learner.stats()["updates"] == 1)
    learner.put(rows_of(1), WAIT_SECS)
    wait_until(lambda: not learner.alive and learner.num_loaders_alive == 0)
    with pytest.raises(Boom):
        learner.put(rows_of(2), WAIT_SECS)
    learner.join(WAIT_SECS)
    with pytest.raises(Boom):
        learner.check()


def test_the_loaders_end_with_the_learner(make_learner):
    """Those that wait for a buffer, too."""
    learner = make_learner(
        CountingTrainer(fails_at=1), num_loaders=4, num_loader_buffers=1
    )
    learner.put(rows_of(0), WAIT_SECS)
    wait_until(lambda: not learner.alive and learner.num_loaders_alive == 0)
    with pytest.raises(Boom):
        learner.check()


def test_a_buffer_is_loaded_again_only_behind_its_last_training(make_learner):
    """One buffer: the second batch is loaded after the second pass of the first."""
    events = []

    class Watched(CountingTrainer):
        def load(self, batch):
            events.append(f"load {batch['id'][0]}")
            return batch

        def train(self, loaded):
            time.sleep(0.005)  # room for a loader that does not wait
            events.append(f"train {loaded['id'][0]}")
            return {}

    learner = make_learner(
        Watched(), num_loaders=2, num_loader_buffers=1, num_passes=2, initial_passes=2
    )
    for number in range(3):
        learner.put(rows_of(number), WAIT_SECS)
    wait_until(lambda: learner.stats()["updates"] == 6)
    expected = [f"{what} {i}" for i in range(3) for what in ("load", "train", "train")]
    assert events == expected


# Versions.


def test_snapshots_are_never_torn_and_their_version_is_theirs(make_learner):
    trainer = CountingTrainer()
    learner = make_learner(trainer, version=7)
    stop = threading.Event()

    def feed():
        while not stop.is_set():
            learner.put(rows_of(0), WAIT_SECS)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        seen = []
        while len(seen) < 300 or seen[-1] < 200:
            version, (first, second) = learner.parameters(WAIT_SECS)
            assert (first == version - 7).all() and (second == version - 7).all()
            seen.append(version)
    finally:
        stop.set()
        feeder.join(WAIT_SECS)
    assert seen == sorted(seen)


def test_a_snapshot_is_a_copy_that_nobody_writes_to(make_learner):
    trainer = CountingTrainer()
    learner = make_learner(trainer)
    before = learner.parameters(WAIT_SECS)
    learner.put(rows_of(0), WAIT_SECS)
    wait_until(lambda: learner.version == 1)
    assert before.version == 0 and (before.arrays[0] == 0).all()
    with pytest.raises(ValueError, match="read-only"):
        before.arrays[0][:] = 1


def test_a_snapshot_waits_for_the_update_with_a_limit(make_learner):
    trainer = CountingTrainer(gated=True)
    learner = make_learner(trainer)
    learner.put(rows_of(0), WAIT_SECS)
    assert trainer.entered.acquire(timeout=WAIT_SECS)
    with pytest.raises(TimeoutError, match="update"):
        learner.parameters(0.01)
    trainer.gate.release()
    wait_until(lambda: learner.version == 1)
    assert learner.parameters(WAIT_SECS).version == 1


def test_a_failed_update_gives_no_parameters(make_learner):
    """Whoever waited for the update's end does not get what it left behind."""
    trainer = CountingTrainer(fails_at=1, gated=True)
    learner = make_learner(trainer)
    learner.put(rows_of(0), WAIT_SECS)
    assert trainer.entered.acquire(timeout=WAIT_SECS)
    raised = []

    def read():
        try:
            learner.parameters(WAIT_SECS)
        except Boom as error:
            raised.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    wait_until(lambda: learner._gate._readers)
    trainer.gate.release()
    reading.join(WAIT_SECS)
    assert len(raised) == 1 and learner.version == 0


def test_the_policy_lag_is_that_of_the_updates(make_learner):
    learner = make_learner(CountingTrainer(), version=10, num_passes=2)
    learner.put({"id": np.zeros(2), "version": np.array([10, 7])}, WAIT_SECS)
    wait_until(lambda: learner.version == 11)
    assert learner.stats()["policy_lag_mean"] == 1.5  # of 0 and 3
    learner.put({"id": np.zeros(2), "version": np.array([11, 9])}, WAIT_SECS)
    wait_until(lambda: learner.version == 13)
    lags = [0, 3, 0, 2, 1, 3]  # the second batch is trained on twice
    assert learner.stats()["policy_lag_mean"] == np.mean(lags)
    assert learner.stats()["policy_lag_max"] == 3


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"queue_size": 0}, "queue_size .* got 0"),
        ({"num_loaders": -1}, "num_loaders .* got -1"),
        ({"num_passes": 0}, "num_passes .* got 0"),
        ({"minibatch_buffer_size": 0}, "minibatch_buffer_size .* got 0"),
        (
            {"num_loaders": 1, "num_loader_buffers": 2, "minibatch_buffer_size": 4},
            "num_loader_buffers .* minibatch_buffer_size = 4.* got 2",
        ),
        ({"num_loader_buffers": 2}, "num_loader_buffers is 2 without num_loaders"),
    ],
)
def test_impossible_settings_are_named(settings, named):
    with pytest.raises(ValueError, match=named):
        LearnerSettings(**settings)
