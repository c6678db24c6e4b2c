"""The LSTM against NumPy, step by step."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_session_config
from distrl.core.nests import map_nest
from distrl.networks.placeholders import placeholders
from distrl.networks.recurrent import LSTMState, lstm, lstm_state_spec

T, B, D, H = 5, 3, 4, 2


def example(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(T, B, D)).astype(np.float32)
    reset = np.zeros((T, B), bool)
    reset[0, 0] = reset[2, 1] = reset[3, 1] = reset[4, 2] = True
    c, h = rng.normal(size=(2, B, H)).astype(np.float32)
    return x, reset, c, h


class Unrolled:
    """The graph of an LSTM, with a session."""

    def __init__(self, num_steps=T):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(1)
            self.x = tf.placeholder(tf.float32, [num_steps, None, D])
            self.reset = tf.placeholder(tf.bool, [num_steps, None])
            self.state = placeholders(lstm_state_spec(H), "state")
            self.outputs, self.last = lstm(self.x, self.reset, self.state)
            self.inputs = [self.x, *self.state]
            self.slopes = {
                t: tf.gradients(self.outputs[t, :, 0], self.inputs)
                for t in range(num_steps)
            }
            self.variables = {v.op.name: v for v in tf.global_variables()}
            noise = [v.assign_add(tf.random.normal(v.shape)) for v in
                     self.variables.values()]  # fmt: skip
            init = tf.global_variables_initializer()
        self.session = tf.Session(graph=graph, config=local_session_config())
        self.session.run(init)
        self.session.run(noise)  # a bias of 0 would hide a bias that is left out

    def run(self, fetches, x, reset, c, h):
        feed = {self.x: x, self.reset: reset, self.state.c: c, self.state.h: h}
        return self.session.run(fetches, feed)


@pytest.fixture
def unrolled():
    made = []

    def make(*args):
        made.append(Unrolled(*args))
        return made[-1]

    yield make
    for each in made:
        each.session.close()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def oracle(weights, x, reset, c, h):
    """One stream and one step at a time."""
    outputs = np.zeros((T, B, H))
    c, h = c.astype(float), h.astype(float)
    for b in range(B):
        for t in range(T):
            if reset[t, b]:
                c[b], h[b] = 0, 0
            gates = x[t, b] @ weights["lstm/input_kernel"]
            gates = gates + h[b] @ weights["lstm/recurrent_kernel"]
            i, f, g, o = np.split(gates + weights["lstm/bias"], 4)
            c[b] = sigmoid(f + 1) * c[b] + sigmoid(i) * np.tanh(g)
            h[b] = sigmoid(o) * np.tanh(c[b])
            outputs[t, b] = h[b]
    return outputs, c, h


def test_outputs_and_state(unrolled):
    net = unrolled()
    outputs, last, weights = net.run((net.outputs, net.last, net.variables), *example())
    expected, c, h = oracle(weights, *example())
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(last.c, c, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(last.h, h, rtol=1e-4, atol=1e-6)
    shapes = {name: value.shape for name, value in weights.items()}
    assert shapes == {
        "lstm/input_kernel": (D, 4 * H),
        "lstm/recurrent_kernel": (H, 4 * H),
        "lstm/bias": (4 * H,),
    }


def test_one_step_after_the_other_is_the_whole(unrolled):
    """As an actor runs what a learner unrolls."""
    net, single = unrolled(), unrolled(1)
    x, reset, *state = example()
    whole = net.run(net.outputs, x, reset, *state)
    weights = net.session.run(net.variables)
    with single.session.graph.as_default():
        single.session.run([single.variables[k].assign(v) for k, v in weights.items()])
    for t in range(T):
        one, state = single.run(
            (single.outputs, single.last), x[t : t + 1], reset[t : t + 1], *state
        )
        np.testing.assert_allclose(one[0], whole[t], rtol=1e-4, atol=1e-6)


def test_a_reset_hides_all_before_it_and_nothing_else(unrolled):
    net = unrolled()
    x, reset, c, h = example()
    plain = net.run(net.outputs, x, reset, c, h)
    x, c, h = x.copy(), c.copy(), h.copy()
    x[:2, 1] = np.nan  # before the reset at 2; rows 2 and on must not see it
    c[0], h[0] = np.nan, np.inf  # cleared in row 0
    moved = net.run(net.outputs, x, reset, c, h)
    np.testing.assert_array_equal(moved[:, 0], plain[:, 0])
    np.testing.assert_array_equal(moved[2:, 1], plain[2:, 1])
    assert np.isnan(moved[:2, 1]).all()


def test_the_row_before_a_reset_sees_its_own_episode(unrolled):
    net = unrolled()
    x, reset, c, h = example()
    plain = net.run(net.outputs, x, reset, c, h)
    moved = net.run(net.outputs, x, reset, c + 1, h)
    changed = (moved != plain).any(axis=2)
    np.testing.assert_array_equal(changed[:, 0], [False] * 5)
    np.testing.assert_array_equal(changed[:, 1], [True, True, False, False, False])
    np.testing.assert_array_equal(changed[:, 2], [True, True, True, True, False])


def test_gradients_are_finite_differences_and_stop_at_resets(unrolled):
    net = unrolled()
    x, reset, c, h = example()
    slope_x, slope_c, slope_h = net.run(net.slopes[3], x, reset, c, h)
    weights = {k: v.astype(float) for k, v in net.session.run(net.variables).items()}

    def total(x, c, h):
        return oracle(weights, x, reset, c, h)[0][3, :, 0].sum()

    arrays = [a.astype(np.float64) for a in (x, c, h)]
    for which, slope in enumerate((slope_x, slope_c, slope_h)):
        expected = np.zeros_like(arrays[which])
        for index in np.ndindex(expected.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [a.copy() for a in arrays]
                moved[which][index] += step
                ends.append(total(*moved))
            expected[index] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-5)
    assert (slope_x[:3, 1] == 0).all() and (slope_c[:2] == 0).all()
    assert (slope_c[2] != 0).all() and (slope_x[4] == 0).all()


def test_there_is_no_control_flow(unrolled):
    graph = unrolled().session.graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert not kinds & {"Switch", "Merge", "Enter", "While", "If", "StatelessWhile"}


def test_large_inputs_saturate(unrolled):
    net = unrolled()
    x, reset, c, h = example()
    values = net.run([net.outputs, *net.slopes[4]], 1e6 * x, reset, c, h)
    assert all(np.isfinite(value).all() for value in values)
    assert abs(values[0]).max() <= 1


def test_the_states_spec():
    spec = lstm_state_spec(7)
    assert [leaf.shape for leaf in spec] == [(7,), (7,)]
    zeros = map_nest(lambda leaf: leaf.zeros(2), spec)
    assert isinstance(zeros, LSTMState) and zeros.c.shape == (2, 7)


@pytest.mark.parametrize(
    ("x", "reset", "c", "h"),
    [
        ([None, B, D], [None, B], [B, H], [B, H]),
        ([T, B, None], [T, B], [B, H], [B, H]),
        ([T, B, D], [T, B], [B, None], [B, None]),
        ([T, B, D], [T, B], [B, H + 1], [B, H]),
        ([T, B], [T, B], [B, H], [B, H]),
        ([T, B, D], [T], [B, H], [B, H]),
        ([T, B, D], [T + 1, B], [B, H], [B, H]),
        ([T, B, D], [T, B], [H], [H]),
    ],
)
def test_other_shapes_are_refused(x, reset, c, h):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"expected|static|5"):
        floats = [tf.placeholder(tf.float32, shape) for shape in (x, c, h)]
        resets = tf.placeholder(tf.bool, reset)
        lstm(floats[0], resets, LSTMState(*floats[1:]))
