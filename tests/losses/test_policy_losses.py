"""PPO's losses against plain NumPy and finite differences."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_session_config
from distrl.losses.policy import clipped_surrogate, clipped_value_loss


def run(function, arrays, clip=None):
    """What `function` returns, and the gradients of the summed losses by argument."""
    with tf.Graph().as_default() as graph:
        ph = {name: tf.placeholder(tf.float32, [None]) for name in arrays}
        built = function(**ph, clip=clip)
        losses = built[0] if isinstance(built, tuple) else built
        slopes = dict(zip(ph, tf.gradients(losses, list(ph.values())), strict=True))
        slopes = {name: slope for name, slope in slopes.items() if slope is not None}
        feed = {ph[name]: array for name, array in arrays.items()}
        with tf.Session(graph=graph, config=local_session_config()) as session:
            return session.run((built, slopes), feed)


def surrogate_example():
    """Ratios inside and on both sides outside, with advantages of both signs."""
    ratio = np.float32([0.5, 0.5, 0.95, 1.0, 1.1, 1.5, 1.5, 0.9])
    advantages = np.float32([2.0, -2.0, 1.0, -1.0, -3.0, 2.0, -2.0, 0.0])
    behaviour = np.float32([-1.0, -3.0, -0.1, -2.0, 0.5, -1.0, -1.5, -4.0])
    return {
        "log_prob": behaviour + np.log(ratio),
        "behaviour_log_prob": behaviour,
        "advantages": advantages,
    }


def surrogate_oracle(log_prob, behaviour_log_prob, advantages, clip):
    """Case by case: which side is worse, and its slope towards log_prob."""
    losses, slopes = [], []
    for new, old, a in zip(log_prob, behaviour_log_prob, advantages, strict=True):
        ratio = np.exp(new - old)
        if a > 0 and ratio > 1 + clip:
            losses.append(-(1 + clip) * a)
            slopes.append(0.0)
        elif a < 0 and ratio < 1 - clip:
            losses.append(-(1 - clip) * a)
            slopes.append(0.0)
        else:
            losses.append(-ratio * a)
            slopes.append(-ratio * a)
    return losses, slopes


@pytest.mark.parametrize("clip", [0.2, 0.01, 0.7])
def test_the_clipped_surrogate(clip):
    example = surrogate_example()
    (losses, extra), slopes = run(clipped_surrogate, example, clip)
    expected, slope = surrogate_oracle(**example, clip=clip)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert set(slopes) == {"log_prob"}
    np.testing.assert_allclose(slopes["log_prob"], slope, rtol=1e-5, atol=1e-6)
    log_ratio = example["log_prob"] - example["behaviour_log_prob"]
    ratio = np.exp(log_ratio)
    np.testing.assert_allclose(extra.ratio, ratio, rtol=1e-5)
    np.testing.assert_array_equal(extra.clipped, abs(ratio - 1) > clip)
    kl = ratio - 1 - log_ratio
    np.testing.assert_allclose(extra.approximate_kl, kl, rtol=1e-4, atol=1e-6)


def test_the_slope_is_a_finite_difference():
    example = surrogate_example()
    _, slopes = run(clipped_surrogate, example, 0.2)
    moved = [
        run(clipped_surrogate, {**example, "log_prob": example["log_prob"] + s}, 0.2)
        for s in (1e-3, -1e-3)
    ]
    difference = (moved[0][0][0] - moved[1][0][0]) / 2e-3
    np.testing.assert_allclose(slopes["log_prob"], difference, atol=2e-3)


def test_at_the_first_minibatch_the_slope_is_the_advantage():
    example = surrogate_example()
    example["log_prob"] = example["behaviour_log_prob"]
    (losses, extra), slopes = run(clipped_surrogate, example, 0.2)
    np.testing.assert_array_equal(losses, -example["advantages"])
    np.testing.assert_array_equal(slopes["log_prob"], -example["advantages"])
    assert not extra.clipped.any() and not extra.approximate_kl.any()


def test_extreme_ratios_stay_finite():
    example = {
        "log_prob": np.float32([0, -1e4, 0, 1e4, 300]),
        "behaviour_log_prob": np.float32([-1e4, 0, -1e4, -1e4, 0]),
        "advantages": np.float32([1, 1, -1, 0, -2]),
    }
    (losses, extra), slopes = run(clipped_surrogate, example, 0.2)
    assert np.isfinite([losses, extra.ratio, extra.approximate_kl]).all()
    np.testing.assert_array_equal(slopes["log_prob"], np.zeros(5))
    np.testing.assert_allclose(losses[[0, 1, 3]], [-1.2, 0, 0], atol=1e-6)
    assert losses[2] > 1e8 and extra.clipped.all()


def test_the_mean_of_approximate_kl_is_the_kl():
    """Of two normal distributions, at actions of the behaviour."""
    x = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    example = {
        "log_prob": -0.5 * (x - 0.3) ** 2,
        "behaviour_log_prob": -0.5 * x**2,
        "advantages": x,
    }
    (_, extra), _ = run(clipped_surrogate, example, 0.2)
    assert extra.approximate_kl.mean() == pytest.approx(0.3**2 / 2, rel=0.02)
    assert (extra.approximate_kl >= 0).all()


def test_clip_may_be_a_tensor():
    example = surrogate_example()
    with tf.Graph().as_default(), tf.Session() as session:
        clip = tf.placeholder(tf.float32, [])
        losses, _ = clipped_surrogate(**example_tensors(example), clip=clip)
        value = clipped_value_loss(*3 * [tf.constant([1.0])], clip=clip)
        got, _ = session.run((losses, value), {clip: 0.2})
    expected, _ = surrogate_oracle(**example, clip=0.2)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def example_tensors(example):
    return {name: tf.constant(array) for name, array in example.items()}


def value_example():
    """Values that moved far and near, towards their targets and away."""
    old = np.float32([0, 0, 0, 0, 0, 1])
    value = np.float32([0.1, 1.0, 1.0, -1.0, -0.3, 1.0])
    target = np.float32([1.0, 2.0, 0.1, 2.0, -5.0, 1.0])
    return {"value": value, "old_value": old, "target": target}


def test_the_clipped_value_loss():
    example = value_example()
    losses, slopes = run(clipped_value_loss, example, 0.2)
    expected, slope = [], []
    for v, old, target in zip(*example.values(), strict=True):
        near = old + np.clip(v - old, -0.2, 0.2)
        plain = (v - target) ** 2 / 2
        clipped = (near - target) ** 2 / 2
        expected.append(max(plain, clipped))
        slope.append(v - target if plain >= clipped else 0.0)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert set(slopes) == {"value"}
    np.testing.assert_allclose(slopes["value"], slope, rtol=1e-5, atol=1e-6)
    assert 0 in slope[:5] and any(slope)


def test_without_clip_it_is_half_the_squared_error():
    example = value_example()
    losses, slopes = run(clipped_value_loss, example)
    error = example["value"] - example["target"]
    np.testing.assert_allclose(losses, error**2 / 2, rtol=1e-6)
    np.testing.assert_allclose(slopes["value"], error, rtol=1e-6)
    assert set(slopes) == {"value"}


@pytest.mark.parametrize(
    ("function", "example"),
    [(clipped_surrogate, surrogate_example()), (clipped_value_loss, value_example())],
)
def test_an_empty_batch_a_wrong_rank_and_a_wrong_clip(function, example):
    empty = {name: array[:0] for name, array in example.items()}
    built, _ = run(function, empty, 0.2)
    losses = built[0] if isinstance(built, tuple) else built
    assert losses.shape == (0,)
    for clip in (0.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match=f"clip .*{clip}"):
            run(function, example, clip)
    for name in example:
        with tf.Graph().as_default():
            tensors = example_tensors(example)
            tensors[name] = tf.expand_dims(tensors[name], 1)
            with pytest.raises(ValueError, match=f"{name} must have rank"):
                function(**tensors, clip=0.2)
