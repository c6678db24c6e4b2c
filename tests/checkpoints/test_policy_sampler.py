"""The sampler: actions by seed, values, exchanged parameters."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.models.ppo import PPOModel

SPEC = EnvironmentSpec(
    ArraySpec((3,), "float64"),
    {"go": ArraySpec((), "int32", 5, 7), "push": ArraySpec((2,), "float64", -0.5, 0.5)},
)
N = 64


def linear_network(spec, observation, num_parameters):
    x = tf.cast(observation, tf.float32)
    w = tf.get_variable("w", [3, num_parameters], use_resource=True)
    u = tf.get_variable("u", [3, 1], use_resource=True)
    return tf.matmul(x, w), tf.squeeze(tf.matmul(x, u), 1)


@pytest.fixture(scope="module")
def sampler():
    model = PPOModel(linear_network, normalise_observations=True)
    one = PolicySampler(model, SPEC, seed=3)
    yield one
    one.close()


@pytest.fixture(scope="module")
def observation():
    return np.random.default_rng(0).normal(3.0, 2.0, (N, 3))


def parameters(sampler, seed=0):
    """In the sampler's order, with statistics that matter."""
    rng = np.random.default_rng(seed)
    arrays = [
        np.asarray(rng.uniform(0.5, 2.0, shape) * 3).astype(dtype)
        for _, shape, dtype in sampler.parameter_specs
    ]
    names = [spec.name.rsplit("/", 1)[-1] for spec in sampler.parameter_specs]
    return arrays, dict(zip(names, arrays, strict=True))


def test_actions_are_a_function_of_the_seed(sampler, observation):
    first, again = (sampler.act(observation, (7, 1)) for _ in range(2))
    other = sampler.act(observation, np.array([7, 2], np.int32))
    for name in ("go", "push"):
        np.testing.assert_array_equal(first.raw_action[name], again.raw_action[name])
        assert (first.raw_action[name] != other.raw_action[name]).any()
    np.testing.assert_array_equal(first.value, other.value)


def test_all_follow_the_equations(sampler, observation):
    arrays, named = parameters(sampler)
    sampler.load(arrays)
    x = (observation - named["mean"]) / np.sqrt(named["variance"] + 1e-8)
    outputs = np.clip(x, -10, 10) @ named["w"]
    logits, mean, log_std = outputs[:, :3], outputs[:, 3:], named["log_std"]
    acted = sampler.act(observation, (0, 0))
    value = np.clip(x, -10, 10) @ named["u"]
    np.testing.assert_allclose(acted.value, value[:, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(sampler.value(observation), acted.value)

    log_pi = logits - logits.max(1, keepdims=True)
    log_pi -= np.log(np.exp(log_pi).sum(1, keepdims=True))
    z = (acted.raw_action["push"] - mean) / np.exp(log_std)
    expected = log_pi[np.arange(N), acted.raw_action["go"] - 5]
    expected += (-(z**2) / 2 - log_std - np.log(2 * np.pi) / 2).sum(1)
    np.testing.assert_allclose(acted.log_prob, expected, rtol=1e-3, atol=1e-3)

    greedy = sampler.greedy(observation)
    np.testing.assert_array_equal(greedy["go"], logits.argmax(1) + 5)
    np.testing.assert_allclose(greedy["push"], np.clip(mean, -0.5, 0.5), atol=1e-4)
    assert greedy["go"].dtype == np.int32 and greedy["push"].dtype == np.float64


def test_the_environment_gets_what_is_within_its_bounds(sampler, observation):
    raw = sampler.act(observation, (1, 1)).raw_action
    action = sampler.to_environment(raw)
    assert abs(raw["push"]).max() > 0.5 >= abs(action["push"]).max()
    assert raw["push"].dtype == sampler.raw_spec["push"].dtype


def test_parameters_that_do_not_fit_are_refused(sampler):
    arrays, _ = parameters(sampler)
    arrays[0] = arrays[0][:2]
    with pytest.raises(ValueError, match="mean.*3.*2"):
        sampler.load(arrays)


def test_observations_that_do_not_fit_are_refused(sampler):
    with pytest.raises(ValueError, match="observation.*float64.*float32"):
        sampler.value(np.zeros((2, 3), np.float32))


def test_equal_seeds_are_equal_policies(sampler, observation):
    model = PPOModel(linear_network, normalise_observations=True)
    values = []
    for seed in (3, 3, 4):
        one = PolicySampler(model, SPEC, seed)
        values.append(one.value(observation))
        one.close()
    np.testing.assert_array_equal(values[0], values[1])
    assert (values[0] != values[2]).any()
