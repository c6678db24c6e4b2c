"""Policy and value networks: what is shared, how it starts, how it unrolls."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_session_config
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.networks.placeholders import placeholders
from distrl.networks.policy_value_network import (
    orthogonal_mlp,
    policy_value_network,
    recurrent_policy_value_network,
)
from distrl.networks.recurrent import LSTMState
from distrl.networks.torsos import mlp, nature_cnn

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 3))
X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
B, H = 2, 5


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


def run(fetches, feed):
    """Values, and all variables by name."""
    with tf.Session(config=local_session_config()) as session:
        session.run(tf.global_variables_initializer())
        variables = {v.op.name: v for v in tf.global_variables()}
        return session.run((fetches, variables), feed)


def affine(x, variables, name):
    return x @ variables[f"{name}/kernel"] + variables[f"{name}/bias"]


def tanh_mlp(x, variables, scope):
    for index in range(2):
        x = np.tanh(affine(x, variables, f"{scope}/hidden_{index}"))
    return x


@pytest.mark.parametrize("shared", [False, True])
def test_parameters_and_values(shared):
    x = placeholders(SPEC.observation, "x")
    built = policy_value_network(SPEC, x, 4, shared=shared)
    assert [tensor.shape.as_list() for tensor in built] == [[None, 4], [None]]
    (parameters, value), variables = run(built, {x: X})
    scopes = ["torso"] * 2 if shared else ["policy_torso", "value_torso"]
    features = [tanh_mlp(X, variables, scope) for scope in scopes]
    expected = affine(features[0], variables, "policy_head")
    np.testing.assert_allclose(parameters, expected, rtol=1e-4, atol=1e-6)
    expected = affine(features[1], variables, "value_head")[:, 0]
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)
    assert len(variables) == (8 if shared else 12)


def test_kernels_are_orthogonal_with_their_gains():
    x = placeholders(SPEC.observation, "x")
    _, variables = run(policy_value_network(SPEC, x, 4), {x: X})
    gains = {
        "policy_torso/hidden_0": np.sqrt(2),
        "value_torso/hidden_1": np.sqrt(2),
        "policy_head": 0.01,
        "value_head": 1.0,
    }
    for name, gain in gains.items():
        kernel = variables[f"{name}/kernel"]
        kernel = kernel if kernel.shape[0] < kernel.shape[1] else kernel.T
        expected = gain**2 * np.eye(len(kernel))
        np.testing.assert_allclose(kernel @ kernel.T, expected, atol=1e-5)
        assert not variables[f"{name}/bias"].any()


def test_only_a_shared_torso_learns_from_both():
    x = placeholders(SPEC.observation, "x")
    for shared in (False, True):
        with tf.variable_scope(f"shared_{shared}"):
            parameters, value = policy_value_network(SPEC, x, 4, shared=shared)
        kernels = tf.trainable_variables(f"shared_{shared}/.*hidden_0/kernel")
        reached = [
            [slope is not None for slope in tf.gradients(loss, kernels)]
            for loss in (parameters, value)
        ]
        assert reached == ([[True]] * 2 if shared else [[True, False], [False, True]])


def test_the_torso_its_activation_and_the_gains_can_be_chosen():
    x = placeholders(SPEC.observation, "x")

    def torso(spec, observation):
        return orthogonal_mlp(spec, observation, (7,), tf.nn.relu)

    built = policy_value_network(SPEC, x, 2, torso, policy_gain=3.0, value_gain=0.5)
    (parameters, _), variables = run(built, {x: X})
    features = np.maximum(affine(X, variables, "policy_torso/hidden_0"), 0)
    expected = affine(features, variables, "policy_head")
    np.testing.assert_allclose(parameters, expected, rtol=1e-4, atol=1e-5)
    norms = np.linalg.norm(variables["policy_head/kernel"], axis=0)
    np.testing.assert_allclose(norms, 3.0, rtol=1e-5)
    assert np.linalg.norm(variables["value_head/kernel"]) == pytest.approx(0.5)


def test_images_go_through_one_torso():
    spec = SPEC._replace(observation=ArraySpec((4, 84, 84), "uint8", 0, 255, 4))
    x = placeholders(spec.observation, "x")
    built = policy_value_network(spec, x, 6, nature_cnn, shared=True)
    frames = np.random.default_rng(0).integers(0, 256, (2, 4, 84, 84), np.uint8)
    (parameters, value), variables = run(built, {x: frames})
    assert parameters.shape == (2, 6) and value.shape == (2,)
    assert sum("conv_0" in name for name in variables) == 2


class Recurrent:
    """The graph of a recurrent network, fed with rows of `num_steps` steps."""

    def __init__(self, num_steps):
        self.x = placeholders(SPEC.observation, f"x_{num_steps}")
        self.reset = tf.placeholder(tf.bool, [None])
        self.state = LSTMState(*(tf.placeholder(tf.float32, [None, H]) for _ in "ch"))
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
            self.built = recurrent_policy_value_network(
                SPEC, self.x, self.reset, self.state, num_steps, 4, mlp
            )

    def run(self, session, x, reset, state):
        feed = {self.x: x, self.reset: reset, self.state.c: state[0]}
        return session.run(self.built, {**feed, self.state.h: state[1]})


def test_acting_step_by_step_is_what_the_learner_unrolls():
    learner, actor = Recurrent(3), Recurrent(1)
    reset = np.array([False, False, True, False, False, False])  # stream 0, step 1
    state = np.random.default_rng(1).normal(size=(2, B, H)).astype(np.float32)
    with tf.Session(config=local_session_config()) as session:
        session.run(tf.global_variables_initializer())
        parameters, value, last = learner.run(session, X, reset, state)
        assert parameters.shape == (6, 4) and value.shape == (6,)
        for t in range(3):
            rows = slice(t * B, (t + 1) * B)
            p, v, state = actor.run(session, X[rows], reset[rows], state)
            np.testing.assert_allclose(p, parameters[rows], rtol=1e-4, atol=1e-7)
            np.testing.assert_allclose(v, value[rows], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(state, last, rtol=1e-4, atol=1e-6)
    names = [v.op.name for v in tf.global_variables()]
    assert "net/lstm/bias" in names and "net/torso/hidden_0/kernel" in names


@pytest.mark.parametrize("num_steps", [0, 4])
def test_rows_are_a_whole_number_of_steps(num_steps):
    state = LSTMState(tf.zeros([B, H]), tf.zeros([B, H]))
    reset = tf.zeros([6], tf.bool)
    with pytest.raises(ValueError, match=f"6 rows are not {num_steps} steps"):
        recurrent_policy_value_network(SPEC, tf.constant(X), reset, state, num_steps, 4)
