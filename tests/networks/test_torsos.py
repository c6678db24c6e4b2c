"""Torsos: what of the observation reaches the features, and how."""

from functools import partial

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.core.specs import ArraySpec, leaves
from distrl.networks.placeholders import placeholders
from distrl.networks.torsos import board_cnn, flat_observation, mlp, nature_cnn


def run(build, spec, observation):
    """What `build` computes of the observation, and the variables it made."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        inputs = placeholders(spec, "observation")
        output = build(spec, inputs)
        session.run(tf.global_variables_initializer())
        names = {v.op.name: v for v in tf.global_variables()}
        feed = dict(zip(leaves(inputs), leaves(observation), strict=True))
        return session.run((output, names), feed)


def test_a_vector_is_taken_as_it_is():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    flat, _ = run(flat_observation, ArraySpec((3,), "float32"), x)
    np.testing.assert_array_equal(flat, x)


def test_leaves_are_cast_flattened_and_joined_in_order():
    spec = {"b": (ArraySpec((2, 2), "uint8"),), "a": ArraySpec((), "float64")}
    observation = {
        "b": (np.array([[[1, 2], [3, 4]], [[5, 6], [7, 255]]], np.uint8),),
        "a": np.array([0.5, -0.5]),
    }
    flat, _ = run(flat_observation, spec, observation)
    assert flat.dtype == np.float32
    np.testing.assert_array_equal(flat, [[0.5, 1, 2, 3, 4], [-0.5, 5, 6, 7, 255]])


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint16"])
def test_a_discrete_observation_is_one_hot_from_its_minimum(dtype):
    spec = ArraySpec((), dtype, 2, 5)
    flat, _ = run(flat_observation, spec, np.array([2, 5, 3], dtype))
    np.testing.assert_array_equal(flat, np.eye(4)[[0, 3, 1]])


def test_an_integer_of_all_int8_is_one_hot():
    spec = ArraySpec((), "int8", -128, 127)
    flat, _ = run(flat_observation, spec, np.array([-128, 127], np.int8))
    np.testing.assert_array_equal(flat, np.eye(256)[[0, 255]])


def test_an_integer_with_too_many_values_is_a_number():
    spec = ArraySpec((), "int64", -(2**62), 2**62)
    flat, _ = run(flat_observation, spec, np.array([7, -9]))
    np.testing.assert_array_equal(flat, [[7], [-9]])


def test_mlp_has_the_layers_asked_for():
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    y, variables = run(
        lambda spec, x: mlp(spec, x, (8, 5), tf.nn.tanh), ArraySpec((3,), "float32"), x
    )
    for index in range(2):
        kernel, bias = (variables[f"hidden_{index}/{n}"] for n in ("kernel", "bias"))
        x = np.tanh(x @ kernel + bias)
    assert y.shape == (4, 5)
    np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-6)


def test_nature_cnn_has_the_papers_layers():
    frames = np.zeros((3, 4, 84, 84), np.uint8)
    y, variables = run(nature_cnn, ArraySpec((4, 84, 84), "uint8", 0, 255, 4), frames)
    shapes = [v.shape for name, v in variables.items() if name.endswith("kernel")]
    expected = [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (3136, 512)]
    assert y.shape == (3, 512) and shapes == expected


def test_nature_cnn_sees_space_as_space_and_frames_as_channels():
    frames = np.random.default_rng(0).integers(0, 256, (2, 4, 84, 84), np.uint8)
    spec = ArraySpec((4, 84, 84), "uint8", 0, 255, 4)

    def build(spec, observation):
        features = nature_cnn(spec, observation)
        return features, features.graph.get_tensor_by_name("conv_0/Conv2D:0")

    (_, conv), variables = run(build, spec, frames)
    window = frames[:, :, 4:12, 8:16].astype(np.float32) / 255  # row 1, column 2
    oracle = np.einsum("bcij,ijcf->bf", window, variables["conv_0/kernel"])
    np.testing.assert_allclose(conv[:, 1, 2], oracle, atol=1e-5)


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec((84, 84), "uint8"),
        ArraySpec((4, 84, 84), "float32"),
        {"a": ArraySpec((4, 84, 84), "uint8"), "b": ArraySpec((1,), "uint8")},
    ],
)
def test_nature_cnn_names_the_spec_that_it_cannot_read(spec):
    with tf.Graph().as_default(), pytest.raises(ValueError, match="84, 84"):
        nature_cnn(spec, placeholders(spec, "observation"))


def test_a_board_is_seen_by_filters_and_then_as_a_whole():
    spec = ArraySpec((6, 7, 2), "int8", 0, 1)
    random = np.random.default_rng(0)
    board = random.integers(0, 2, (5, 6, 7, 2)).astype(np.int8)
    torso = partial(board_cnn, filters=8, width=4, hidden_sizes=(12, 10))
    features, variables = run(torso, spec, board)
    assert features.shape == (5, 10) and (features >= 0).all() and features.any()
    assert variables["conv/kernel"].shape == (4, 4, 2, 8)
    assert variables["hidden_0/kernel"].shape == (3 * 4 * 8, 12)
    moved = board.copy()
    moved[0, 5, 6, 1] ^= 1
    other, _ = run(torso, spec, moved)
    assert (other[0] != features[0]).any()
    np.testing.assert_array_equal(other[1:], features[1:])


@pytest.mark.parametrize("shape", [(3, 3), (3, 4, 2)])
def test_a_board_that_is_too_small_is_refused(shape):
    spec = ArraySpec(shape, "int8")
    with pytest.raises(ValueError, match=r"board_cnn needs .* of 4 fields"):
        board_cnn(spec, None, width=4)
