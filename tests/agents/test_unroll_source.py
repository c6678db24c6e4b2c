"""What an `UnrollSource` samples: how many steps, of which times, at which rewards."""

from functools import partial

import numpy as np
import pytest
from gymnasium import Env, spaces

from distrl.agents.stream_policies import FlatSampler, LocalPolicy
from distrl.agents.unroll_streams import UnrollSource, UnrollStreams
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.reward_clip import RewardClip
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.losses.returns import step_mask
from distrl.models.impala import ImpalaModel

pytestmark = pytest.mark.timeout(60)


class Clock(Env):
    """Shows the time; pays 1,000 in the first step of an episode of `length`."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length):
        self._length = length

    def reset(self, *, seed=None, options=None):
        self._time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._time += 1
        reward = 1000.0 if self._time == 1 else 0.0
        shown = np.full(1, self._time, np.float32)
        return shown, reward, self._time == self._length, False, {}


def clocks(length, number):
    seeds = EnvironmentSeeds(0, "actor", 0)
    return SerialVectorEnvironment(partial(Clock, length), number, seeds)


@pytest.fixture
def make_source():
    """Makes sources that are closed behind the test."""
    made = []

    def make(length, num_envs, num_steps):
        environment = partial(clocks, length, num_envs)
        made.append(UnrollSource(environment, ImpalaModel(), num_steps, 0))
        return made[-1]

    yield make
    for source in made:
        source.close()


def mask_of(unrolls):
    return step_mask(unrolls.terminated.T, unrolls.truncated.T, unrolls.first_is_last).T


def test_a_sample_has_a_fixed_number_of_steps(make_source):
    """8 environments, 2 steps: 16 rows a sample; episodes of 20 steps: none has ended
    within 8 samples, 8 have within 16."""
    source, ends = make_source(20, 8, 2), []
    for _ in range(16):
        unrolls = source.sample()
        assert unrolls.reward.shape == (8, 2)
        ends.append(int((unrolls.terminated & mask_of(unrolls)).sum()))
    assert sum(ends[:8]) == 0 and sum(ends) == 8


def test_samples_go_on_where_the_last_one_ended(make_source):
    """Times 0 … 9 of episodes of 10, again and again; masked rows show the 10."""
    source = make_source(10, 1, 15)
    times, last = [], []
    for _ in range(5):
        unrolls = source.sample()
        shown, mask = unrolls.observation[0, :-1, 0], mask_of(unrolls)[0]
        times += shown[mask].tolist()
        last += shown[~mask].tolist()
        behind = unrolls.observation[0, -1, 0]
    assert len(times) + len(last) == 5 * 15
    assert times == [time % 10 for time in range(len(times))]
    assert last == [10] * (len(times) // 10)
    assert behind == len(times) % 10


def test_clipping_leaves_the_return_of_an_episode_alone():
    environment = RewardClip(clocks(3, 2), -1.0, 1.0)
    sampler = FlatSampler(ImpalaModel(), environment.spec)
    policy = LocalPolicy(sampler, np.random.SeedSequence(0))
    spec = ImpalaModel().trajectories_spec(environment.spec, 8)
    streams = UnrollStreams([environment], policy, spec)
    advances = [streams.step() for _ in range(9)]
    unrolls = advances[-1].finished
    assert unrolls.reward.max() == 1
    assert unrolls.reward.sum(axis=1).tolist() == [2, 2]
    infos = [info for advance in advances for info in advance.infos]
    returns = [info["episode_return"].tolist() for info in infos if info]
    assert returns == [[1000.0, 1000.0]] * 2
    policy.close()
    environment.close()
