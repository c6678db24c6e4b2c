"""Layers against NumPy."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.networks.layers import conv2d, dense


def run(tensor, feed=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        names = {v.op.name: v for v in tf.global_variables()}
        return session.run((tensor, names), feed)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


def test_dense_is_an_affine_map():
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    y, variables = run(dense(tf.constant(x), 4, "layer", tf.nn.relu))
    assert list(variables) == ["layer/kernel", "layer/bias"]
    assert variables["layer/kernel"].shape == (3, 4)
    oracle = np.maximum(x @ variables["layer/kernel"] + variables["layer/bias"], 0)
    np.testing.assert_allclose(y, oracle, rtol=1e-5, atol=1e-6)
    assert (y == 0).any() and (y > 0).any()


def test_dense_without_activation_is_negative_somewhere():
    y, _ = run(dense(tf.ones([1, 8]), 64, "layer"))
    assert (y < 0).any()


def test_dense_adds_its_bias():
    y = dense(tf.zeros([2, 3]), 4, "layer")
    bias = tf.global_variables()[1]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(bias.assign([1.0, 2.0, 3.0, 4.0]))
        np.testing.assert_array_equal(session.run(y), [[1, 2, 3, 4]] * 2)


def test_the_same_scope_shares_variables():
    x = tf.ones([2, 3])
    with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
        one = dense(x, 4, "layer")
    with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
        other = dense(x, 4, "layer")
    (a, b), variables = run((one, other))
    assert len(variables) == 2
    np.testing.assert_array_equal(a, b)


def test_dense_takes_an_initializer():
    y, _ = run(dense(tf.ones([1, 3]), 2, "layer", None, tf.ones_initializer()))
    np.testing.assert_array_equal(y, [[3, 3]])


@pytest.mark.parametrize("shape", [[3], [2, 3, 4], [2, None]])
def test_dense_refuses_other_shapes(shape):
    with pytest.raises(ValueError, match="layer"):
        dense(tf.placeholder(tf.float32, shape), 2, "layer")


def test_conv2d_slides_a_kernel():
    x = np.random.default_rng(0).normal(size=(2, 7, 6, 3)).astype(np.float32)
    y, variables = run(conv2d(tf.constant(x), 5, 3, 2, "layer"))
    kernel = variables["layer/kernel"]
    assert kernel.shape == (3, 3, 3, 5) and y.shape == (2, 3, 2, 5)
    for row in range(3):
        for column in range(2):
            window = x[:, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
            oracle = np.einsum("bijc,ijcf->bf", window, kernel)
            np.testing.assert_allclose(y[:, row, column], oracle, atol=1e-5)


@pytest.mark.parametrize("shape", [[2, 7, 6], [2, None, 6, 3], [2, 7, 2, 3]])
def test_conv2d_refuses_other_shapes(shape):
    with pytest.raises(ValueError, match="layer"):
        conv2d(tf.placeholder(tf.float32, shape), 5, 3, 2, "layer")
