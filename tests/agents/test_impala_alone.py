"""IMPALA on one machine without a cluster: workers, optimizer, learner thread."""

from functools import partial

import numpy as np
import pytest

from distrl.agents.evaluation import greedy_returns
from distrl.agents.unroll_streams import UnrollSource
from distrl.checkpoints.policy import GreedyPolicy
from distrl.core.schedules import constant
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.memory_task import CueTask
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.learners.async_samples_optimizer import (
    AsyncSamplesOptimizer,
    AsyncSamplesSettings,
)
from distrl.learners.impala_session import ImpalaSession, ImpalaSettings
from distrl.learners.learner_thread import LearnerSettings
from distrl.learners.sample_workers import ThreadWorker
from distrl.models.gradient_optimizers import adam
from distrl.models.impala import ImpalaModel
from distrl.models.recurrent_core import RecurrentCore

LENGTH, NUM_ENVS, BATCH = 10, 16, 32
MAX_ROWS = 40_000  # unrolls, of which 4,000 are enough where nothing else runs


def make_environment(index):
    seeds = EnvironmentSeeds(0, "actor", index)
    return SerialVectorEnvironment(partial(CueTask, delay=3), NUM_ENVS, seeds)


def success(model, named):
    environment = make_environment(9)
    policy = GreedyPolicy(model, environment.spec, named)
    returns = greedy_returns(environment, policy.act, 100)
    policy.close()
    environment.close()
    return np.mean(returns)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("num_loaders", [0, 2])
def test_a_memory_task_is_learnt(num_loaders):
    """Over two devices, with loaders that split the batches, and without."""
    model = ImpalaModel(
        core=RecurrentCore(16), loss_reduction="mean", gradient_optimizer=adam
    )
    spec = make_environment(8).spec
    devices = ["/cpu:0"] * (1 + (num_loaders > 0))
    settings = ImpalaSettings(constant(2e-3), devices)
    session = ImpalaSession(model, spec, LENGTH, 0, settings)
    workers = [
        ThreadWorker(
            partial(
                UnrollSource, partial(make_environment, index), model, LENGTH, index
            ),
            f"worker {index}",
        )
        for index in (0, 1)
    ]
    learner = LearnerSettings(queue_size=2, num_loaders=num_loaders)
    optimization = AsyncSamplesSettings(BATCH, fragment_rows=NUM_ENVS, learner=learner)
    with AsyncSamplesOptimizer(workers, session, optimization) as optimizer:
        sampled = reached = 0
        while reached < 0.95 and sampled < MAX_ROWS:
            look = sampled + 2000
            while sampled < look:
                sampled += optimizer.step().sampled_rows
            named = session.named(optimizer.parameters().arrays)
            reached = success(model, named)
        stats = optimizer.stats()
    assert reached >= 0.95
    assert stats["trained_rows"] % BATCH == 0 < stats["trained_rows"] <= sampled
    session.close()
