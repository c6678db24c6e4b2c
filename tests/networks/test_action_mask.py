"""Masks are taken out of observations, and what they forbid is never chosen."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.networks.action_mask import ILLEGAL, has_mask, only_legal, split_mask

MASK = ArraySpec((3,), "int8", 0, 1)
BOARD = ArraySpec((2,), "float32")
ACTION = ArraySpec((), "int64", 0, 2)
SPEC = EnvironmentSpec({"action_mask": MASK, "observation": BOARD}, ACTION)


def run(fetches, feeds=None):
    with tf.Session() as session:
        return session.run(fetches, feeds)


def test_a_mask_is_split_off_and_the_only_other_leaf_is_left():
    with tf.Graph().as_default():
        mask = tf.constant([[1, 0, 2], [0, 0, 0]], tf.int8)
        board = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        masked = split_mask(SPEC, {"action_mask": mask, "observation": board})
        assert masked.observation is board
        legal = run(masked.legal)
    assert masked.spec == EnvironmentSpec(BOARD, ACTION)
    np.testing.assert_array_equal(legal, [[True, False, True], [True, True, True]])


def test_other_leaves_stay_a_dict():
    spec = SPEC._replace(observation={"action_mask": MASK, "a": BOARD, "b": BOARD})
    with tf.Graph().as_default():
        observation = {key: tf.zeros([1, 3]) for key in spec.observation}
        masked = split_mask(spec, observation)
    assert set(masked.observation) == set(masked.spec.observation) == {"a", "b"}


def test_without_a_mask_nothing_changes():
    spec = EnvironmentSpec({"observation": BOARD}, ACTION)
    observation = {"observation": "anything"}
    assert not has_mask(spec) and has_mask(SPEC)
    masked = split_mask(spec, observation)
    assert masked.spec is spec and masked.observation is observation
    assert masked.legal is None and only_legal("values", None) == "values"


def test_illegal_values_are_below_all_others():
    with tf.Graph().as_default():
        values = tf.constant([[-1e9, 5.0, 1.0]])
        found = run(only_legal(values, tf.constant([[True, False, True]])))
    np.testing.assert_array_equal(found, np.float32([[-1e9, ILLEGAL, 1.0]]))


@pytest.mark.parametrize(
    "spec",
    [
        SPEC._replace(action=ArraySpec((), "int64", 0, 3)),
        SPEC._replace(action=ArraySpec((2,), "float32", -1.0, 1.0)),
        SPEC._replace(observation={"action_mask": {"x": MASK}, "o": BOARD}),
    ],
    ids=["another number", "real actions", "a nest"],
)
def test_a_mask_that_does_not_fit_is_refused(spec):
    with pytest.raises(ConfigError, match="action"):
        split_mask(spec, {"action_mask": None, "o": None})
