"""Clipped rewards, against their formulas."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.losses.reward_clipping import check_reward_clipping, clipped_rewards

REWARDS = np.array([[-100.0, -1.5, -0.5], [0.0, 0.7, 1000.0]], np.float32)
EXPECTED = {
    None: REWARDS,
    "abs_one": [[-1, -1, -0.5], [0, 0.7, 1]],
    "soft_asymmetric": [
        [-1.5, 1.5 * np.tanh(-0.3), 1.5 * np.tanh(-0.1)],
        [0, 5 * np.tanh(0.14), 5],
    ],
}


@pytest.mark.parametrize("mode", EXPECTED)
def test_modes(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        rewards = tf.placeholder(tf.float32, [None, None])
        got = session.run(clipped_rewards(rewards, mode), {rewards: REWARDS})
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, EXPECTED[mode], rtol=1e-6)


def test_other_modes_are_refused():
    with pytest.raises(ValueError, match="abs_one.*got 'sign'"):
        check_reward_clipping("sign")
    with tf.Graph().as_default(), pytest.raises(ValueError, match="got ''"):
        clipped_rewards(tf.zeros([1]), "")
