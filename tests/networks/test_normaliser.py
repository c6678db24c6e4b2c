"""Normalised observations in the graph."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.core.specs import ArraySpec
from distrl.networks.normaliser import normalised
from distrl.networks.placeholders import placeholders

SPEC = {
    "far": ArraySpec((2,), "float64"),
    "frames": ArraySpec((1, 2, 2), "uint8"),
    "near": (ArraySpec((), "float32"),),
}


@pytest.fixture(scope="module")
def run():
    """Normalised leaves of observations, under given statistics."""
    with tf.Graph().as_default():
        inputs = placeholders(SPEC, "observation")
        outputs, variables = normalised(SPEC, inputs)
        again, same = normalised(SPEC, inputs)
        flat = [variable for own in variables for variable in own[1:]]
        names = [variable.op.name for variable in flat]
        shared = all(a[1] is b[1] for a, b in zip(variables, same, strict=True))
        info = {"names": names, "shared": shared, "trainable": tf.trainable_variables()}
        values = [tf.placeholder(v.dtype, v.shape) for v in flat]
        load = tf.group(*[v.assign(x) for v, x in zip(flat, values, strict=True)])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())

            def call(observation, statistics=None):
                if statistics is not None:
                    feeds = dict(zip(values, statistics, strict=True))
                    session.run(load, feeds)
                feeds = {inputs[name]: observation[name] for name in ("far", "frames")}
                feeds[inputs["near"][0]] = observation["near"][0]
                return session.run(outputs, feeds)

            yield call, info


def observation(seed=0, rows=6):
    rng = np.random.default_rng(seed)
    return {
        "far": rng.normal(1e9, 2.0, (rows, 2)),
        "frames": rng.integers(0, 256, (rows, 1, 2, 2)).astype(np.uint8),
        "near": (rng.normal(0.0, 3.0, rows).astype(np.float32),),
    }


def test_at_first_nothing_but_the_far_is_cut(run):
    """Mean 0 and variance 1, as the variables start."""
    call, _ = run
    one = observation()
    start = [np.zeros(2), np.ones(2), 0, 0.0, 1.0, 0]
    got = call(one, start)
    np.testing.assert_allclose(got["near"][0], one["near"][0], rtol=1e-6)
    np.testing.assert_array_equal(got["far"], np.full((6, 2), 10.0))


def test_statistics_scale_each_element(run):
    call, _ = run
    one, means, variances = (
        observation(),
        np.array([1e9, 1e9 - 1]),
        np.array([4.0, 0.25]),
    )
    got = call(one, [means, variances, 7, -1.0, 9.0, 7])
    expected = np.clip((one["far"] - means) / np.sqrt(variances), -10, 10)
    np.testing.assert_allclose(got["far"], expected, rtol=1e-5)
    np.testing.assert_allclose(got["near"][0], (one["near"][0] + 1) / 3, rtol=1e-5)
    np.testing.assert_array_equal(got["frames"], one["frames"])
    assert got["far"].dtype == np.float32 and got["frames"].dtype == np.uint8


def test_variance_0_is_finite(run):
    call, _ = run
    one = observation()
    one["far"][:] = 3.0
    got = call(one, [np.full(2, 3.0), np.zeros(2), 7, 0.0, 0.0, 7])
    assert (got["far"] == 0).all() and (abs(got["near"][0]) == 10).all()


def test_variables_are_named_shared_and_not_trained(run):
    _, info = run
    parts = ("mean", "variance", "count")
    assert info["names"] == [
        f"normaliser/observation_{leaf}/{part}"
        for leaf in ("far", "near_0")
        for part in parts
    ]
    assert info["shared"] and info["trainable"] == []
