"""Double Q-learning and Huber against plain NumPy."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.losses.value import double_q_learning, huber

B, A = 7, 4
NAMES = ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t_value", "q_t_selector")


def example(seed=0):
    """Arguments in the order of NAMES; errors on both sides of the Huber's corner."""
    rng = np.random.default_rng(seed)
    values = [rng.normal(size=(B, A)).astype(np.float32) for _ in range(3)]
    discount = np.full(B, 0.9, np.float32)
    discount[2] = 0.0
    reward = (2 * rng.normal(size=B)).astype(np.float32)
    return dict(
        q_tm1=values[0],
        a_tm1=rng.integers(0, A, B),
        r_t=reward,
        discount_t=discount,
        q_t_value=values[1],
        q_t_selector=values[2],
    )


def oracle(q_tm1, a_tm1, r_t, discount_t, q_t_value, q_t_selector, delta):
    """Loss, target and gradient towards q_tm1, row by row."""
    losses, targets, gradient = [], [], np.zeros((B, A), np.float32)
    for i in range(B):
        best = int(np.argmax(q_t_selector[i]))
        target = r_t[i] + discount_t[i] * q_t_value[i, best]
        error = target - q_tm1[i, a_tm1[i]]
        if abs(error) <= delta:
            losses.append(error**2 / 2)
        else:
            losses.append(delta * (abs(error) - delta / 2))
        targets.append(target)
        gradient[i, a_tm1[i]] = -np.clip(error, -delta, delta)
    return np.array(losses), np.array(targets), gradient


def run(arguments, delta=1.0):
    """Loss, extra, and the gradients of the summed loss towards every argument."""
    with tf.Graph().as_default(), tf.Session() as session:
        ph = {
            k: tf.placeholder(v.dtype, [None, *v.shape[1:]])
            for k, v in arguments.items()
        }
        loss, extra = double_q_learning(**ph, huber_delta=delta)
        floats = [k for k in NAMES if k != "a_tm1"]
        gradients = dict(
            zip(floats, tf.gradients(loss, [ph[k] for k in floats]), strict=True)
        )
        none = {k for k, gradient in gradients.items() if gradient is None}
        some = {k: gradient for k, gradient in gradients.items() if k not in none}
        feed = {ph[k]: arguments[k] for k in NAMES}
        return *session.run((loss, extra, some), feed), none


@pytest.mark.parametrize("delta", [1.0, 0.3, 100.0])
def test_values_and_gradients(delta):
    arguments = example()
    loss, extra, gradients, none = run(arguments, delta)
    expected_loss, target, gradient = oracle(**arguments, delta=delta)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(extra.target, target, rtol=1e-5, atol=1e-6)
    q = arguments["q_tm1"][np.arange(B), arguments["a_tm1"]]
    np.testing.assert_allclose(extra.td_error, target - q, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradients["q_tm1"], gradient, rtol=1e-5, atol=1e-6)
    assert none == {"r_t", "discount_t", "q_t_value", "q_t_selector"}


def test_the_example_has_errors_on_both_sides_of_the_corner():
    _, extra, _, _ = run(example())
    assert (abs(extra.td_error) < 1).any() and (abs(extra.td_error) > 1).any()


def test_the_selector_at_s_t_chooses_and_the_other_network_values():
    """Each of the three networks would choose another action."""
    arguments = dict(
        q_tm1=np.array([[9.0, 0.0, 0.0]], np.float32),
        a_tm1=np.array([1]),
        r_t=np.array([1.0], np.float32),
        discount_t=np.array([0.5], np.float32),
        q_t_value=np.array([[10.0, 100.0, 20.0]], np.float32),
        q_t_selector=np.array([[0.0, 0.0, 1.0]], np.float32),
    )
    _, extra, _, _ = run(arguments)
    assert extra.target == 1.0 + 0.5 * 20.0
    assert extra.best_action == 2


def test_a_terminated_transition_has_its_reward_as_target():
    arguments = example()
    arguments["discount_t"][:] = 0
    _, extra, _, _ = run(arguments)
    np.testing.assert_array_equal(extra.target, arguments["r_t"])


def test_an_empty_batch_has_no_loss():
    empty = {name: array[:0] for name, array in example().items()}
    assert run(empty)[0].shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_rank_is_named(name):
    arguments = example()
    arguments[name] = arguments[name][..., None]
    with pytest.raises(ValueError, match=f"{name} must have rank"):
        run(arguments)


def test_an_unknown_rank_is_refused():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="r_t"):
        arguments = {k: tf.constant(v) for k, v in example().items()}
        arguments["r_t"] = tf.placeholder(tf.float32, None)
        double_q_learning(**arguments)


def test_huber_and_its_slope():
    x = np.array([-3.0, -0.5, 0.0, 0.5, 2.0, 7.0], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        tensor = tf.constant(x)
        y = huber(tensor, 2.0)
        value, slope = session.run((y, tf.gradients(y, tensor)[0]))
    np.testing.assert_allclose(value, [4.0, 0.125, 0.0, 0.125, 2.0, 12.0])
    np.testing.assert_allclose(slope, [-2.0, -0.5, 0.0, 0.5, 2.0, 2.0])


@pytest.mark.parametrize("delta", [0.0, -1.0])
def test_huber_refuses_a_delta_that_is_not_above_zero(delta):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=str(delta)):
        huber(tf.constant([1.0]), delta)
