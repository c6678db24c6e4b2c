"""Models that are given masks act, learn and bootstrap by legal actions only."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.checkpoints.policy import GreedyPolicy, LocalPolicy
from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.cluster.local_session import local_session
from distrl.core.errors import ConfigError
from distrl.core.records import ReplayBatch, Transition
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves
from distrl.models.ddpg import DDPGModel
from distrl.models.dqn import DQNModel
from distrl.models.es import ESModel
from distrl.models.impala import ImpalaModel
from distrl.models.ppo import PPOModel
from distrl.networks.placeholders import batch_placeholders

A = 4
SPEC = EnvironmentSpec(
    {
        "action_mask": ArraySpec((A,), "int8", 0, 1),
        "observation": ArraySpec((3,), "float32"),
    },
    ArraySpec((), "int64", 0, A - 1),
)


def observations(number, seed=0):
    random = np.random.default_rng(seed)
    mask = (random.random((number, A)) < 0.4).astype(np.int8)
    mask[np.arange(number), random.integers(A, size=number)] = 1
    seen = random.normal(size=(number, 3)).astype(np.float32)
    return {"action_mask": mask, "observation": seen}


def linear_network(spec, observation):
    assert spec.observation == SPEC.observation["observation"]
    weights = tf.get_variable("w", [3, A], initializer=tf.random_normal_initializer())
    return tf.matmul(observation, weights)


def test_action_values_and_greedy_actions_are_legal():
    policy = LocalPolicy(DQNModel(linear_network), SPEC, seed=3)
    seen = observations(200)
    legal = seen["action_mask"].astype(bool)
    values = policy.action_values(seen)
    assert (values[~legal] < -1e29).all() and (abs(values[legal]) < 100).all()
    policy.close()
    with tf.Graph().as_default():
        parameters = {"online/w": np.random.default_rng(1).normal(size=(3, A))}
    greedy = GreedyPolicy(
        DQNModel(linear_network),
        SPEC,
        {name: array.astype(np.float32) for name, array in parameters.items()},
    )
    assert legal[np.arange(200), greedy.act(seen)].all()
    greedy.close()


@pytest.mark.parametrize("double", [True, False])
def test_targets_bootstrap_from_legal_actions(double):
    number, random = 50, np.random.default_rng(5)
    s_tm1, s_t = observations(number, 1), observations(number, 2)
    discount = np.full(number, 0.9, np.float32)
    discount[:5] = 0
    s_t["action_mask"][:5] = 0  # behind the end nothing is legal
    action = s_tm1["action_mask"].argmax(axis=1)
    reward = random.normal(size=number).astype(np.float32)
    data = Transition(s_tm1, action, reward, discount, s_t)
    batch = ReplayBatch(data, np.ones(number, np.float32), np.arange(number))
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(2)
        inputs = batch_placeholders(SPEC)
        learning = DQNModel(linear_network, double=double).build_learning(SPEC, inputs)
        init = tf.global_variables_initializer()
    with local_session(graph) as session:
        session.run(init)
        online, target = session.run([learning.variables[0], learning.variables[1]])
        feeds = dict(zip(leaves(inputs), leaves(batch), strict=True))
        fetches = learning.priorities, learning.metrics["mean_q"]
        priorities, mean_q = session.run(fetches, feeds)
    q_tm1, q_t = s_tm1["observation"] @ online, s_t["observation"] @ target
    selector = s_t["observation"] @ online if double else q_t
    rows, legal = np.arange(number), s_t["action_mask"] == 1
    best = np.where(legal, selector, -np.inf).argmax(axis=1)
    expected = reward + discount * q_t[rows, best] - q_tm1[rows, action]
    np.testing.assert_allclose(priorities, abs(expected), rtol=1e-4, atol=1e-5)
    legal_q = q_tm1[s_tm1["action_mask"] == 1]
    np.testing.assert_allclose(mean_q, legal_q.mean(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [ImpalaModel(), PPOModel()], ids=["impala", "ppo"])
def test_policies_draw_and_prefer_legal_actions(model):
    seen = observations(300)
    legal = seen["action_mask"].astype(bool)
    sampler = PolicySampler(model, SPEC, seed=1)
    rows = np.arange(300)
    drawn = np.zeros((300, A), bool)
    for call in range(40):
        acted = sampler.act(seen, (7, call))
        assert legal[rows, acted.raw_action].all()
        assert np.isfinite(acted.log_prob).all()
        drawn[rows, acted.raw_action] = True
    assert (drawn == legal).mean() > 0.95
    assert legal[rows, sampler.greedy(seen)].all()
    sampler.close()


def test_models_that_heed_no_mask_say_so():
    with pytest.raises(ConfigError, match="ESModel heeds no action_mask"):
        ESModel().check(SPEC)
    real = SPEC._replace(action=ArraySpec((2,), "float32", -1.0, 1.0))
    with pytest.raises(ConfigError, match="DDPGModel heeds no action_mask"):
        DDPGModel().check(real)
