"""Heads against the equation, with parameters taken from the graph."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.networks.heads import dueling_head, linear_head

FEATURES = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


def run(head, *arguments):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        values = head(tf.constant(FEATURES), *arguments)
        session.run(tf.global_variables_initializer())
        # Biases that are not zero, so that one that is left out is seen.
        for index, v in enumerate(tf.global_variables()):
            session.run(v.assign_add(tf.fill(v.shape, 0.1 * (index + 1))))
        return session.run((values, {v.op.name: v for v in tf.global_variables()}))


def affine(x, variables, name):
    return x @ variables[f"{name}/kernel"] + variables[f"{name}/bias"]


def dueling(value, advantages):
    return value + advantages - advantages.mean(axis=1, keepdims=True)


def test_linear_head():
    values, variables = run(linear_head, 3)
    oracle = affine(FEATURES, variables, "action_values")
    np.testing.assert_allclose(values, oracle, rtol=1e-4, atol=1e-5)


def test_dueling_head_without_hidden_layers():
    values, variables = run(dueling_head, 3)
    streams = affine(FEATURES, variables, "value_and_advantages")
    oracle = dueling(streams[:, :1], streams[:, 1:])
    np.testing.assert_allclose(values, oracle, rtol=1e-4, atol=1e-5)


def test_dueling_head_with_a_hidden_layer_for_each_stream():
    values, variables = run(dueling_head, 3, 7)
    hidden = [
        np.maximum(affine(FEATURES, variables, f"{name}_hidden"), 0)
        for name in ("value", "advantages")
    ]
    oracle = dueling(
        affine(hidden[0], variables, "value"),
        affine(hidden[1], variables, "advantages"),
    )
    assert hidden[0].shape == (6, 7)
    np.testing.assert_allclose(values, oracle, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [None, 7])
def test_a_dueling_mean_is_the_state_value(hidden):
    """The advantages alone do not move the mean over the actions."""
    with tf.Graph().as_default(), tf.Session() as session:
        values = dueling_head(tf.constant(FEATURES), 3, hidden)
        bias = tf.global_variables()[-1]
        shift = tf.one_hot([bias.shape[0] - 1], bias.shape[0])[0]
        session.run(tf.global_variables_initializer())
        before = session.run(values)
        session.run(bias.assign_add(shift))
        after = session.run(values)
    np.testing.assert_allclose(after.mean(axis=1), before.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(after[:, 2] - before[:, 2], 2 / 3, atol=1e-5)
