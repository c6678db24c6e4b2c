"""A recurrent core: unrolls, their states and resets, and what it can learn."""

import gymnasium
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from gymnasium import spaces
from in_process_ppo import Collector, learn
from rounds import mask_of, random_round

from distrl.checkpoints.policy import GreedyPolicy
from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.core.core_states import CoreStates
from distrl.core.schedules import constant
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.learners.minibatches import UnrollMinibatches
from distrl.learners.policy_session import PPOSession
from distrl.learners.sync_samples import PPOSettings, SyncSamples
from distrl.models.ppo import PPOBatch, PPOModel
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.placeholders import placeholders
from distrl.networks.recurrent import LSTMState


class CueEnv(gymnasium.Env):
    """Shows a cue first, and pays for the action that names it `delay` steps later."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, delay=3):
        self._delay = delay

    def _show(self):
        cue = 2 * self._cue - 1 if self._time == 0 else 0
        return np.array([cue, self._time / self._delay], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._cue, self._time = int(self.np_random.integers(2)), 0
        return self._show(), {}

    def step(self, action):
        ends = self._time == self._delay
        reward = float(ends and action == self._cue)
        self._time += not ends
        return self._show(), reward, ends, False, {}


class Parts:
    """Environment, sampler, session and collector of one recurrent run."""

    def __init__(self, unroll_length=4, num_envs=16, **options):
        seeds = EnvironmentSeeds(0, "actor", 0)
        self.environment = SerialVectorEnvironment(CueEnv, num_envs, seeds)
        self.model = PPOModel(core=RecurrentCore(16, unroll_length), **options)
        self.session = PPOSession(self.model, self.environment.spec, seed=0)
        self.sampler = PolicySampler(self.model, self.environment.spec)
        self.sampler.load(self.session.parameters())
        self.collector = Collector(
            self.environment, self.sampler, unroll_length=unroll_length
        )

    def mode(self, observation, core_state):
        """The most probable actions, from the values of a sampler of its own."""
        return self.sampler._greedy_step(observation, core_state)[0]

    def close(self):
        for part in (self.environment, self.session, self.sampler):
            part.close()


@pytest.fixture(scope="module")
def parts():
    made = Parts()
    yield made
    made.close()


def test_unrolls_say_what_acting_said(parts):
    """With states and resets in place nothing has moved before the first update."""
    settings = PPOSettings(1, 32, learning_rate=constant(0.0))
    samples = SyncSamples(parts.session, settings, seed=0)
    for _ in range(3):  # of 16 steps: episodes of 4 steps and a reset row lie across
        rows = parts.collector.round(16)
        states = rows.core_state
        assert not mask_of(rows).all() and states.h.any()
        result = samples.train(rows, 0)
        assert result.num_minibatches == 8
        assert abs(result.metrics["approximate_kl"]) < 1e-9
        mixed_up = LSTMState(*[leaf[::-1] for leaf in states])
        wrong = samples.train(rows._replace(core_state=mixed_up), 0)
        assert wrong.metrics["approximate_kl"] > 1e-9


@pytest.mark.timeout(120)
def test_what_was_seen_before_is_remembered():
    """Without a memory the return is 0.5 on average."""
    run = Parts(normalise_observations=True, entropy_cost=0.01)
    settings = PPOSettings(
        num_epochs=4, minibatch_size=128, learning_rate=constant(3e-3)
    )
    samples = SyncSamples(run.session, settings, seed=0)

    def enough(returns):
        return len(returns) >= 100 and np.mean(returns[-100:]) > 0.95

    learn(run.collector, samples, run.session, run.sampler, 32, 60_000, enough)
    run.close()
    assert enough(run.collector.returns), np.mean(run.collector.returns[-100:])


def example(num_steps=6, num_streams=4):
    rows = random_round(num_steps=num_steps, num_streams=num_streams, end_rate=0.6)
    shape, mask = rows.reward.shape, mask_of(rows)
    number = np.arange(mask.size).reshape(shape)
    states = number[::2].astype(np.float32)
    batch = PPOBatch(
        *(rows.observation[:-1], number, np.where(mask, number, np.nan)),
        *(number, number, number, mask.astype(np.float32)),
        core_state=LSTMState(states[..., None], -states[..., None]),
    )
    return batch, mask, number


def test_each_unroll_comes_once_in_its_order_with_its_state():
    batch, mask, number = example()
    epoch = UnrollMinibatches(batch, 2).epoch(5, np.random.default_rng(0))
    reset = np.concatenate([np.zeros((1, 4), bool), ~mask[:-1]])
    trained = []
    for part in epoch:
        first, second = part.raw_action.reshape(2, -1)
        assert len(first) >= 2
        np.testing.assert_array_equal(second, first + 4)  # the row below
        np.testing.assert_array_equal(part.core_state.c[:, 0], first)
        np.testing.assert_array_equal(part.core_state.h[:, 0], -first)
        np.testing.assert_array_equal(part.observation[:, 0], part.raw_action)
        np.testing.assert_array_equal(part.reset, reset.ravel()[part.raw_action])
        assert np.isfinite(part.behaviour_log_prob).all()
        kept = part.raw_action[part.mask == 1]
        np.testing.assert_array_equal(part.behaviour_log_prob[part.mask == 1], kept)
        trained += kept.tolist()
    assert sorted(trained) == number[mask].tolist()


def test_what_does_not_fit_an_unroll_is_refused(parts):
    batch, _, _ = example()
    with pytest.raises(ValueError, match="6 steps are not unrolls of 4"):
        UnrollMinibatches(batch, 4)
    with pytest.raises(ValueError, match=r"expected states \[2, 4\], got \(3, 4, 1\)"):
        UnrollMinibatches(batch, 3)
    rows = parts.collector.round(4)._replace(core_state=())
    with pytest.raises(ValueError, match="round: expected leaves"):
        SyncSamples(parts.session, PPOSettings(), 0).train(rows, 0)


def test_greedy_policies_go_on_from_their_states(parts):
    """The sampler's and the exported one, against acting step by step."""
    sampler, spec = parts.sampler, parts.environment.spec
    named = parts.session.named(parts.session.parameters())
    policy = GreedyPolicy(parts.model, spec, named)
    states = CoreStates(sampler.core_spec, 3)
    random, differ = np.random.default_rng(0), 0
    for step in range(30):
        observation = random.normal(0, 3, (3, 2)).astype(np.float32)
        began = random.random(3) < 0.2 if step else None
        if began is not None:
            states.clear(began)
        rows = sampler.greedy(observation, began)
        np.testing.assert_array_equal(policy.act(observation, began), rows)
        mode = parts.mode(observation, states.now)
        np.testing.assert_array_equal(rows, mode)
        forgetful = parts.mode(observation, CoreStates(sampler.core_spec, 3).now)
        differ += (mode != forgetful).any()
        states.keep(sampler.act(observation, (0, step), states.now).core_state)
    assert differ  # the states matter
    policy.close()


def test_a_state_and_a_core_come_together(parts):
    spec = parts.environment.spec
    with tf.Graph().as_default():
        observation = placeholders(spec.observation, "o")
        with pytest.raises(ValueError, match="core is RecurrentCore"):
            parts.model.build_acting(spec, observation, None)
        with pytest.raises(ValueError, match="core is RecurrentCore"):
            parts.model.build_greedy(spec, observation)


@pytest.mark.parametrize("numbers", [(0, 16), (64, 0)])
def test_bad_sizes_are_refused(numbers):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        RecurrentCore(*numbers)
