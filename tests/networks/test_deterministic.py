"""The networks of a deterministic policy and its critic."""

from functools import partial

import numpy as np
import tensorflow.compat.v1 as tf
from graph_runs import run

from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.networks.deterministic import critic_network, deterministic_policy_network
from distrl.networks.torsos import mlp

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((2,), "float32", -1, 1))
TORSO = partial(mlp, hidden_sizes=(5,))
RNG = np.random.default_rng(0)
S = RNG.normal(size=(6, 3)).astype(np.float32)
A = RNG.uniform(-1, 1, (6, 2)).astype(np.float32)


def random(**shapes):
    rng = np.random.default_rng(1)
    return {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def layer(x, variables, name):
    return x @ variables[f"{name}/kernel"] + variables[f"{name}/bias"]


def relu(x):
    return np.maximum(x, 0)


TORSO_SHAPES = {"torso/hidden_0/kernel": (3, 5), "torso/hidden_0/bias": (5,)}


def test_the_policys_output_is_linear_in_the_torsos():
    variables = random(**TORSO_SHAPES, **{"action/kernel": (5, 4), "action/bias": (4,)})
    got = run(
        lambda s: deterministic_policy_network(SPEC, s, 4, TORSO),
        (S,),
        variables=variables,
    )
    features = relu(layer(S, variables, "torso/hidden_0"))
    expected = layer(features, variables, "action")
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_the_action_joins_behind_the_torso():
    shapes = {
        "hidden/kernel": (5 + 2, 7),
        "hidden/bias": (7,),
        "value/kernel": (7, 1),
        "value/bias": (1,),
    }
    variables = random(**TORSO_SHAPES, **shapes)
    got = run(
        lambda s, a: critic_network(SPEC, s, a, TORSO, hidden=7),
        (S, A),
        variables=variables,
    )
    features = relu(layer(S, variables, "torso/hidden_0"))
    joined = np.concatenate([features, A], axis=1)
    expected = layer(relu(layer(joined, variables, "hidden")), variables, "value")
    assert got.shape == (6,)
    np.testing.assert_allclose(got, expected[:, 0], rtol=1e-4, atol=1e-5)


def test_outputs_are_nearly_zero_at_first():
    def build(s, a):
        with tf.variable_scope("policy"):
            mu = deterministic_policy_network(SPEC, s, 2)
        with tf.variable_scope("critic"):
            return mu, critic_network(SPEC, s, a)

    mu, q = run(build, (S, A))
    assert 0 < np.abs(mu).max() < 0.1 and 0 < np.abs(q).max() < 0.1
