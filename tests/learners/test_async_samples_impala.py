"""The bars of the asynchronous samples optimizer with what IMPALA really trains on.

Sources play CartPole, the trainer is an `ImpalaSession`. A row is an unroll of T = 5
actor steps, and of 4.5 env steps at least on average: the step that resets an episode
is none. The bars of the reference are in env steps and so are they here: more than n
env steps are `above(n)` rows, fewer than n are `below(n)`.
"""

from __future__ import annotations

import functools
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import threading
import time

import gymnasium
import numpy as np
import psutil
import pytest
from async_fakes import own_threads

from distrl.agents.unroll_streams import UnrollSource
from distrl.core.child_process import ChildLimits
from distrl.core.schedules import constant
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.learners.async_samples_optimizer import (
    AsyncSamplesOptimizer,
    AsyncSamplesSettings,
)
from distrl.learners.impala_session import ImpalaSession, ImpalaSettings
from distrl.learners.learner_thread import LearnerSettings
from distrl.learners.sample_workers import ProcessWorker, ThreadWorker
from distrl.losses.returns import step_mask
from distrl.models.gradient_optimizers import adam
from distrl.models.impala import ImpalaModel
from distrl.networks.policy_value_network import orthogonal_mlp, policy_value_network

pytestmark = pytest.mark.timeout(80)

T = 5
SPEC = EnvironmentSpec(ArraySpec((4,), "float32"), ArraySpec((), "int64", 0, 1))
TORSO = functools.partial(orthogonal_mlp, hidden_sizes=(16,))
MODEL = ImpalaModel(
    functools.partial(policy_value_network, torso=TORSO),
    loss_reduction="mean",
    gradient_optimizer=adam,
)
TWO = ("/cpu:0", "/cpu:0")
PASSES = {"num_passes": 10, "minibatch_buffer_size": 10}
LIMITS = ChildLimits(startup_secs=90.0, call_secs=20.0, close_secs=5.0)
WAIT_SECS = 50.0  # of which an idle machine needs 2


def above(env_steps):
    """Rows that hold more than these env steps; `train` checks that they do."""
    return env_steps / (0.9 * T)


def below(env_steps):
    """Rows that cannot hold more."""
    return env_steps / T


class WatchedSession(ImpalaSession):
    """Keeps what it was given, and counts env steps by the definition of the mask."""

    def __init__(self, devices=("/cpu:0",), num_steps=T):
        settings = ImpalaSettings(constant(1e-3), devices)
        super().__init__(MODEL, SPEC, num_steps, 0, settings)
        self._first_state, self.graph = self.state(), self._session.graph
        self.num_operations = len(self.graph.get_operations())
        self.begin_anew()

    def begin_anew(self):
        """As it was made."""
        self.restore(self._first_state, 0)
        self.losses, self.sizes, self.versions = [], [], []
        self.env_steps = self.counted_env_steps = 0
        self.batches = {}  # by the identity of what was loaded, which is kept too

    def load(self, batch):
        loaded = super().load(batch)
        self.batches[id(loaded)] = loaded, batch
        return loaded

    def train(self, loaded):
        metrics = super().train(loaded)
        _, batch = self.batches[id(loaded)]
        self.losses.append(metrics["loss"])
        self.sizes.append(len(batch.first_is_last))
        self.versions.append(int(batch.version.max()))
        ends = batch.terminated.T, batch.truncated.T
        self.counted_env_steps += int(step_mask(*ends, batch.first_is_last).sum())
        return metrics


def source(num_envs, index, num_steps=T):
    """Of parts that another process can import."""
    cartpole = functools.partial(gymnasium.make, "CartPole-v1")
    seeds = EnvironmentSeeds(0, "actor", index)
    make = functools.partial(SerialVectorEnvironment, cartpole, num_envs, seeds)
    return functools.partial(UnrollSource, make, MODEL, num_steps, index)


def threads(num_envs, number=1):
    return [ThreadWorker(source(num_envs, i), f"worker {i}") for i in range(number)]


@pytest.fixture(scope="module")
def sessions():
    """One over one device, one over two; making them costs more than most tests do."""
    made = [WatchedSession(), WatchedSession(TWO)]
    yield made
    for session in made:
        session.close()


@pytest.fixture
def session(sessions):
    sessions[0].begin_anew()
    return sessions[0]


@pytest.fixture
def two_towers(sessions):
    sessions[1].begin_anew()
    return sessions[1]


def children():
    """Processes of this one, but for the helpers of multiprocessing."""
    helpers = (
        multiprocessing.forkserver._forkserver._forkserver_pid,
        multiprocessing.resource_tracker._resource_tracker._pid,
    )
    found = psutil.Process().children(recursive=True)
    return {child.pid for child in found} - set(helpers)


@pytest.fixture(autouse=True)
def nothing_left():
    before = set(threading.enumerate()), children()
    yield
    assert not own_threads()
    assert set(threading.enumerate()) <= before[0]
    assert children() <= before[1]


def run_past(optimizer, **bars):
    """Steps until the counts are above the bars; the start-up does not count."""
    optimizer.step()
    deadline = time.monotonic() + WAIT_SECS
    while not all(optimizer.stats()[name] > bar for name, bar in bars.items()):
        assert time.monotonic() < deadline, optimizer.stats()
        optimizer.step()


def train(workers, session, settings, **bars):
    """Trains past the bars; the stats of the end, when all that was done is counted."""
    before = session.parameters()
    with AsyncSamplesOptimizer(workers, session, settings) as optimizer:
        run_past(optimizer, **bars)
    stats, rows = optimizer.stats(), settings.train_batch_size
    assert session.sizes == [rows] * session.learner_steps
    assert stats["updates"] == stats["version"] == session.learner_steps
    assert stats["trained_rows"] == rows * session.learner_steps
    assert session.env_steps == session.counted_env_steps
    assert 0.9 * T < session.env_steps / stats["trained_rows"] < T
    handed = rows * stats["batches"] + stats["rows_waiting"]
    assert stats["sampled_rows"] + stats["replayed_rows"] == handed
    assert len(session.batches) <= stats["batches"]
    assert np.isfinite(session.losses).all()
    pairs = zip(before, session.parameters(), strict=True)
    assert all(np.isfinite(new).all() and (new != old).any() for old, new in pairs)
    assert session.graph.finalized
    assert len(session.graph.get_operations()) == session.num_operations
    return stats


def per_default(**learner):
    """Fragments of 50 env steps and batches of 500 of them."""
    return AsyncSamplesSettings(
        train_batch_size=100, fragment_rows=10, learner=LearnerSettings(**learner)
    )


BARS = {"sampled_rows": above(1000), "trained_rows": above(1000)}


def test_one_worker_trains(session):
    """I-1: more than 1,000 env steps sampled and trained on, with the defaults."""
    stats = train(threads(10), session, per_default(), **BARS)
    assert session.env_steps > 1000
    assert 0 <= stats["policy_lag_mean"] <= stats["policy_lag_max"]


@pytest.mark.parametrize("learner", [{}, {"num_loaders": 2, "num_loader_buffers": 2}])
def test_two_towers_train(two_towers, learner):
    """I-2: the same bar where each batch is split in two, also by loaders."""
    session = two_towers
    stats = train(threads(10, 2), session, per_default(**learner), **BARS)
    assert session.env_steps > 1000
    assert stats["load_secs"] > 0


@pytest.mark.timeout(160)
def test_a_process_trains(two_towers):
    """The bar of I-1 with a source that imports and plays on its own."""
    session = two_towers
    worker = ProcessWorker(source(10, 0), "worker 0", LIMITS)
    train([worker], session, per_default(), **BARS)
    assert session.env_steps > 1000
    assert worker.pid is not None and not psutil.pid_exists(worker.pid)


def test_parameters_reach_who_acts(session):
    """Later batches are acted under later versions, a queue and a fragment behind."""
    settings = AsyncSamplesSettings(
        10, fragment_rows=10, learner=LearnerSettings(queue_size=1)
    )
    train(threads(10), session, settings, version=40)
    versions = np.array(session.versions)
    assert (np.diff(versions) >= 0).all() and versions[-1] > 20
    # At most: one is trained on, one waits, one is handed over and two are sampled.
    assert (np.arange(len(versions)) - versions <= 5).all()


def test_passes_are_trained_and_not_sampled(session):
    """I-3: 10 passes of each batch of 10 in turn. More than 1,000 env steps sampled and
    10,000 trained on, at fewer than 5,000 sampled. Fragments of 10 rows, batches of
    50: env steps times 5."""
    settings = AsyncSamplesSettings(
        50, fragment_rows=10, learner=LearnerSettings(**PASSES)
    )
    bars = {"sampled_rows": above(1000), "trained_rows": above(10_000)}
    stats = train(threads(10), session, settings, **bars)
    assert session.env_steps > 10_000
    assert stats["sampled_rows"] < below(5000)


def replaying(**learner):
    """10 old fragments behind each new one, fragments and batches of 10 rows."""
    return AsyncSamplesSettings(
        10,
        fragment_rows=10,
        replay_slots=100,
        replay_proportion=10.0,
        learner=LearnerSettings(**learner),
    )


def test_replay_is_trained_and_not_sampled(session):
    """I-4: more than 8,000 env steps replayed and trained on, fewer than 5,000 sampled.
    As many are replayed as asked for, exactly."""
    bars = {"replayed_rows": above(8000), "trained_rows": above(8000)}
    stats = train(threads(10), session, replaying(), **bars)
    assert session.env_steps > 8000
    assert stats["sampled_rows"] < below(5000)
    assert stats["replayed_rows"] == 10 * stats["sampled_rows"]


def test_replay_and_passes_multiply(session):
    """I-5: more than 40,000 env steps trained on. And no graph has grown in more than
    500 updates."""
    stats = train(threads(10), session, replaying(**PASSES), trained_rows=above(40_000))
    assert session.env_steps > 40_000 and session.learner_steps > 500
    assert stats["sampled_rows"] < below(5000)


@pytest.mark.parametrize("num_envs", [50, 25, 74])
def test_fragments_of_any_size_train_on_two_devices(two_towers, num_envs):
    """I-6 in rows: batches of exactly 100, of which each tower has 50."""
    session = two_towers
    settings = AsyncSamplesSettings(100, fragment_rows=num_envs)
    stats = train(threads(num_envs), session, settings, trained_rows=200)
    assert stats["sampled_rows"] % num_envs == 0


def test_fewer_buffers_than_batches_in_turn_are_refused(session):
    """I-6: with 4 in turn and 2 to load into, the learner would wait for ever."""
    workers = threads(10)
    with pytest.raises(ValueError, match="minibatch_buffer_size = 4.*got 2"):
        settings = per_default(
            num_loaders=2, num_loader_buffers=2, minibatch_buffer_size=4
        )
        AsyncSamplesOptimizer(workers, session, settings)


def test_unrolls_that_do_not_fit_end_everything(session):
    """The learner's own error is raised, though the sources have none."""
    workers = [ThreadWorker(source(10, 0, T + 1), "worker 0")]
    settings = AsyncSamplesSettings(10, learner=LearnerSettings(num_loaders=2))
    with pytest.raises(ValueError, match=r"tower_0_observation: .* 6, 4\].* 7, 4\]"):
        with AsyncSamplesOptimizer(workers, session, settings) as optimizer:
            run_past(optimizer, trained_rows=0)
    assert session.learner_steps == 0
