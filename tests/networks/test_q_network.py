"""The Q-network and the numbering of discrete actions."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.networks.discrete import greedy_action, indices, smallest_value
from distrl.networks.placeholders import placeholders
from distrl.networks.q_network import q_network

OBSERVATION = ArraySpec((3,), "float32")


def spec_of(action):
    return EnvironmentSpec(OBSERVATION, action)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("hidden", [None, 6])
def test_a_value_for_each_action_and_a_free_batch(dueling, hidden):
    spec = spec_of(ArraySpec((), "int64", 0, 4))
    x = placeholders(spec.observation, "observation")
    values = q_network(spec, x, dueling=dueling, head_hidden=hidden)
    assert values.shape.as_list() == [None, 5] and values.dtype == tf.float32


def test_the_torso_is_given_spec_and_observation():
    spec = spec_of(ArraySpec((), "int64", 0, 1))
    x = placeholders(spec.observation, "observation")
    seen = []

    def torso(observation_spec, observation):
        seen.append((observation_spec, observation))
        return observation

    q_network(spec, x, torso=torso)
    assert seen == [(OBSERVATION, x)]


@pytest.mark.parametrize(
    "action",
    [
        ArraySpec((2,), "float32", -1.0, 1.0),
        ArraySpec((2,), "int64", 0, 3),
        ArraySpec((), "int64"),
        {"move": ArraySpec((), "int64", 0, 3)},
    ],
)
def test_other_actions_are_refused_by_name(action):
    spec = spec_of(action)
    with pytest.raises(ConfigError, match="int64|float32"):
        q_network(spec, placeholders(OBSERVATION, "observation"))


def test_indices_and_greedy_actions_count_from_the_minimum():
    action = ArraySpec((), "int32", -2, 1)
    values = tf.constant([[0.0, 3.0, 1.0, 3.0], [9.0, 0.0, 0.0, 0.0]])
    best = greedy_action(spec_of(action), values)
    with tf.Session() as session:
        actions, back = session.run((best, indices(action, best)))
    assert actions.dtype == np.int32
    np.testing.assert_array_equal(actions, [-1, -2])
    np.testing.assert_array_equal(back, [1, 0])


def test_indices_do_not_overflow_small_dtypes():
    action = ArraySpec((), "int8", -128, 127)
    with tf.Session() as session:
        result = session.run(indices(action, tf.constant([-128, 127], tf.int8)))
    np.testing.assert_array_equal(result, [0, 255])


def test_bounds_may_be_given_as_one_element():
    assert smallest_value(ArraySpec((), "int64", (3,), (5,))) == 3
