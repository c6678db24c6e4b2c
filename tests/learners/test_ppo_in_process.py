"""PPO learns CartPole in one process."""

import gymnasium
import numpy as np
import pytest
from in_process_ppo import Collector, learn

from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.core.schedules import linear
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.learners.policy_session import PPOSession
from distrl.learners.sync_samples import PPOSettings, SyncSamples
from distrl.models.ppo import PPOModel


def cartpole():
    return gymnasium.make("CartPole-v1")


@pytest.mark.timeout(120)
def test_cartpole_is_learnt():
    """In 60,000 env steps at most, the mean of the last 20 episodes is above 300."""
    settings = PPOSettings(
        num_epochs=10,
        minibatch_size=256,
        discount=0.98,
        learning_rate=linear(1e-3, 0.0, 80_000),
    )
    seeds = EnvironmentSeeds(0, "actor", 0)
    with SerialVectorEnvironment(cartpole, 8, seeds) as environment:
        model = PPOModel(normalise_observations=True)
        session = PPOSession(model, environment.spec, seed=0)
        sampler = PolicySampler(model, environment.spec)
        sampler.load(session.parameters())
        collector = Collector(environment, sampler)
        samples = SyncSamples(session, settings, seed=0)

        def enough(returns):
            return len(returns) >= 20 and np.mean(returns[-20:]) > 300

        learn(collector, samples, session, sampler, 128, 60_000, enough)
        session.close()
        sampler.close()
    assert enough(collector.returns), collector.returns[-20:]
