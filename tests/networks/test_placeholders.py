"""Placeholders follow the spec: structure, order, dtypes, names."""

import tensorflow.compat.v1 as tf

from distrl.core.records import ReplayBatch, replay_batch_spec
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves
from distrl.networks.placeholders import batch_placeholders, placeholders, tensor_name

SPEC = EnvironmentSpec(
    {"image": ArraySpec((4, 8, 8), "uint8"), "a b": ArraySpec((2,), "float32")},
    ArraySpec((), "int64", 0, 2),
)


def test_structure_shapes_dtypes_and_names():
    with tf.Graph().as_default():
        tensors = placeholders(SPEC.observation, "observation")
    assert set(tensors) == {"image", "a b"}
    assert tensors["image"].shape.as_list() == [None, 4, 8, 8]
    assert tensors["image"].dtype == tf.uint8
    assert tensors["a b"].op.name == "observation_a_b"


def test_a_bare_leaf_has_the_name_itself():
    with tf.Graph().as_default():
        assert placeholders(SPEC.action, "action").op.name == "action"
    assert tensor_name("batch", "transition/s_t/0") == "batch_transition_s_t_0"


def test_a_batch_is_fed_in_the_order_of_its_spec():
    with tf.Graph().as_default():
        batch = batch_placeholders(SPEC)
    assert isinstance(batch, ReplayBatch)
    for tensor, leaf in zip(
        leaves(batch), leaves(replay_batch_spec(SPEC)), strict=True
    ):
        assert tensor.dtype.name == leaf.dtype
        assert tuple(tensor.shape.as_list()[1:]) == leaf.shape
