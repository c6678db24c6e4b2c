"""The cue task is learnt with a recurrent core, and not without one."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from in_process_ppo import Collector, learn

from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.core.schedules import constant
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.memory_task import CueTask
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.learners.policy_session import PPOSession
from distrl.learners.sync_samples import PPOSettings, SyncSamples
from distrl.models.ppo import PPOModel
from distrl.models.recurrent_core import RecurrentCore

pytestmark = pytest.mark.timeout(180)

DELAY = 3


def success_rates(core, max_env_steps, enough):
    """Of all training episodes, oldest first; training ends once they are `enough`."""
    factory = functools.partial(CueTask, delay=DELAY)
    seeds = EnvironmentSeeds(0, "actor", 0)
    environment = SerialVectorEnvironment(factory, 16, seeds)
    model = PPOModel(core=core, entropy_cost=0.01)
    session = PPOSession(model, environment.spec, seed=0)
    sampler = PolicySampler(model, environment.spec)
    sampler.load(session.parameters())
    unroll_length = core.unroll_length if core else 1
    collector = Collector(environment, sampler, unroll_length=unroll_length)
    settings = PPOSettings(4, 128, learning_rate=constant(3e-3))
    samples = SyncSamples(session, settings, seed=0)
    learn(collector, samples, session, sampler, 32, max_env_steps, enough)
    for part in (environment, session, sampler):
        part.close()
    return collector.returns


def newest(returns, number=200):
    return np.mean(returns[-number:]) if len(returns) >= number else 0.0


def test_who_remembers_learns_it():
    core = RecurrentCore(32, 8)
    returns = success_rates(core, 100_000, lambda returns: newest(returns) > 0.95)
    assert newest(returns) > 0.95
    assert np.mean(returns[:200]) < 0.65  # nobody is born with it


def test_who_sees_the_present_only_does_not():
    returns = success_rates(None, 20_000, lambda returns: newest(returns) > 0.95)
    assert len(returns) > 3000
    assert newest(returns, 1000) < 0.6  # 6 standard deviations above 0.5
