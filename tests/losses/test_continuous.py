"""The losses of DDPG: values, and who gets gradients."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_session_config
from distrl.losses.continuous import (
    deterministic_critic,
    deterministic_policy_gradient,
    polyak_update,
)

B = 6
NAMES = ("q_tm1", "r_t", "discount_t", "q_t")


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


def run(fetches, feed=None):
    with tf.Session(config=local_session_config()) as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feed)


def critic_example():
    arrays = np.random.default_rng(0).normal(size=(4, B)).astype(np.float32)
    arrays[2] = [0.9, 0.0, 0.9**3, 0.9, 0.0, 0.9]
    return dict(zip(NAMES, arrays, strict=True))


def test_the_critics_loss_and_its_only_gradient():
    example = critic_example()
    ph = {name: tf.placeholder(tf.float32, [None]) for name in NAMES}
    losses, extra = deterministic_critic(**ph)
    slopes = tf.gradients(losses, list(ph.values()))
    assert slopes[1:] == [None, None, None]
    feed = {ph[name]: example[name] for name in NAMES}
    losses, extra, slope = run((losses, extra, slopes[0]), feed)
    target = example["r_t"] + example["discount_t"] * example["q_t"]
    error = target - example["q_tm1"]
    np.testing.assert_allclose(extra.target, target, rtol=1e-5)
    np.testing.assert_allclose(extra.td_error, error, rtol=1e-5)
    np.testing.assert_allclose(losses, error**2 / 2, rtol=1e-5)
    np.testing.assert_allclose(slope, -error, rtol=1e-5)
    assert (extra.target[[1, 4]] == example["r_t"][[1, 4]]).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_rank_is_named(name):
    tensors = {k: tf.constant(v) for k, v in critic_example().items()}
    tensors[name] = tf.expand_dims(tensors[name], 1)
    with pytest.raises(ValueError, match=f"{name} must have rank"):
        deterministic_critic(**tensors)


class Pair:
    """A linear policy and a critic Q(s, a) = w · tanh(s + a), with placeholders."""

    def __init__(self):
        self.s = tf.placeholder(tf.float32, [None, 2])
        rng = np.random.default_rng(3)
        self.k = rng.normal(size=(2, 2)).astype(np.float32)
        self.w = np.float32([1.5, -0.7])
        self.policy, self.critic = (
            tf.get_variable(name, initializer=value, use_resource=True)
            for name, value in (("policy", self.k), ("critic", self.w))
        )
        self.action = tf.matmul(self.s, self.policy)
        self.q = self.value(self.action)
        self.states = rng.normal(size=(B, 2)).astype(np.float32)

    def value(self, action):
        return tf.reduce_sum(self.critic * tf.tanh(self.s + action), axis=1)

    def numbers(self, policy):
        """Q of the policy's actions, NumPy, and its slope towards them."""
        inner = np.tanh(self.states + self.states @ policy)
        return inner @ self.w, self.w * (1 - inner**2)


def test_the_policys_loss_is_minus_q_and_trains_the_policy_alone():
    pair = Pair()
    losses = deterministic_policy_gradient(pair.q, pair.action)
    slopes = tf.gradients(losses, [pair.policy, pair.critic, pair.action])
    assert slopes[1] is None
    losses, slope, towards = run((losses, slopes[0], slopes[2]), {pair.s: pair.states})
    q, dq_da = pair.numbers(pair.k)
    np.testing.assert_allclose(losses, -q, rtol=1e-5)
    np.testing.assert_allclose(towards, -dq_da, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(slope, -pair.states.T @ dq_da, rtol=1e-4, atol=1e-5)
    for index in np.ndindex(2, 2):  # the loss as a function of the policy
        step = np.zeros((2, 2))
        step[index] = 1e-4
        up, down = (pair.numbers(pair.k + s)[0].sum() for s in (step, -step))
        assert slope[index] == pytest.approx(-(up - down) / 2e-4, rel=1e-2)


def test_the_slope_is_limited_row_by_row():
    pair = Pair()
    losses = deterministic_policy_gradient(pair.q, pair.action, 0.5)
    losses, towards = run(
        (losses, tf.gradients(losses, pair.action)[0]), {pair.s: pair.states}
    )
    q, dq_da = pair.numbers(pair.k)
    norm = np.linalg.norm(dq_da, axis=1, keepdims=True)
    assert (norm > 0.5).any() and (norm < 0.5).any()
    expected = -dq_da * np.minimum(1, 0.5 / norm)
    np.testing.assert_allclose(towards, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(losses, -q, rtol=1e-5)


def test_a_saturated_policy_has_finite_gradients():
    pair = Pair()
    losses = deterministic_policy_gradient(pair.q, pair.action, 1.0)
    states = np.float32([[1e4, -1e4], [0, 0]])
    values = run((losses, tf.gradients(losses, pair.policy)[0]), {pair.s: states})
    assert all(np.isfinite(value).all() for value in values)


def test_q_must_be_of_this_action():
    pair = Pair()
    other = pair.value(tf.stop_gradient(pair.action))
    with pytest.raises(ValueError, match="does not depend"):
        deterministic_policy_gradient(other, pair.action)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_is_above_zero(limit):
    pair = Pair()
    with pytest.raises(ValueError, match=str(limit)):
        deterministic_policy_gradient(pair.q, pair.action, limit)


def test_the_policys_loss_checks_ranks():
    pair = Pair()
    with pytest.raises(ValueError, match="q must have rank 1"):
        deterministic_policy_gradient(pair.q[:, None], pair.action)
    with pytest.raises(ValueError, match="action must have rank 2"):
        deterministic_policy_gradient(pair.q, pair.action[:, 0])


def variables(prefix, *values):
    return [
        tf.get_variable(f"{prefix}_{i}", initializer=np.float32(v), use_resource=True)
        for i, v in enumerate(values)
    ]


@pytest.mark.parametrize("polyak", [0.0, 0.9, 0.995])
def test_polyak_averaging(polyak):
    targets = variables("target", [1.0, 2.0], 5.0)
    sources = variables("source", [0.0, 4.0], -1e3)
    update = polyak_update(targets, sources, polyak)
    with tf.Session(config=local_session_config()) as session:
        session.run(tf.global_variables_initializer())
        expected = [np.array([1.0, 2.0]), 5.0]
        for _ in range(3):
            session.run(update)
            expected = [
                polyak * t + (1 - polyak) * np.array(s)
                for t, s in zip(expected, ([0.0, 4.0], -1e3), strict=True)
            ]
        for got, want in zip(session.run(targets), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
        np.testing.assert_array_equal(session.run(sources[0]), [0.0, 4.0])


def test_polyak_refuses_other_shares_and_shapes():
    targets, sources = variables("target", 1.0), variables("source", 1.0, [1.0])
    for polyak in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match=str(polyak)):
            polyak_update(targets, sources[:1], polyak)
    with pytest.raises(ValueError, match=r"\[\[\]\], sources of \[\[1\]\]"):
        polyak_update(targets, sources[1:], 0.9)
    with pytest.raises(ValueError, match="shapes"):
        polyak_update(targets, sources, 0.9)
