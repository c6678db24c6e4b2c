"""A recurrent core: long short-term memory, unrolled without control flow."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from distrl.core.specs import ArraySpec
from distrl.networks.layers import fan_in_initializer


class LSTMState(NamedTuple):
    """What an LSTM remembers; all zero at the start of an episode."""

    c: Any  # float32 [B, H], the cells
    h: Any  # float32 [B, H], the last output


def lstm_state_spec(size: int) -> LSTMState:
    """Dtypes and trailing shapes of the state of an LSTM of `size` H."""
    return LSTMState(ArraySpec((size,), "float32"), ArraySpec((size,), "float32"))


def lstm(
    inputs: tf.Tensor, reset: tf.Tensor, state: LSTMState, name: str = "lstm"
) -> tuple[tf.Tensor, LSTMState]:
    """The outputs h_1 … h_T, float32 `[T, B, H]`, and the state after the last step.

        c, h := 0 where reset_t, else c_{t−1}, h_{t−1}
        i, f, g, o = inputs_t · input_kernel + h · recurrent_kernel + bias
        c_t = sigmoid(f + 1) c + sigmoid(i) tanh(g)
        h_t = sigmoid(o) tanh(c_t)

    Alignment: `reset_t` says that row t is the first of an episode; the state is
    cleared *before* that step, so the row before it, the last observation of the
    episode before, still sees all of its own episode. Gradients flow through all steps
    into inputs and state, none across a reset. Hochreiter and Schmidhuber 1997; the 1
    that keeps gates open at first: Jozefowicz et al. 2015.

    inputs: float32 `[T, B, D]`, T and D static; the graph has T copies of a step.
    reset: bool `[T, B]`. state: float32 `[B, H]` each, H static. B may be unknown.
    Variables: `<name>/input_kernel [D, 4H]`, `recurrent_kernel [H, 4H]`, `bias [4H]`.
    Raises ValueError for other ranks and for sizes that must be static and are not.
    """
    num_steps, depth, size = _check_sizes(inputs, reset, state)
    with tf.variable_scope(name):
        input_kernel = _variable("input_kernel", [depth, 4 * size])
        recurrent_kernel = _variable("recurrent_kernel", [size, 4 * size], True)
        bias = tf.get_variable(
            "bias", [4 * size], initializer=tf.zeros_initializer(), use_resource=True
        )
        # One product for all steps; only that with h has to wait for the step before.
        rows = tf.matmul(tf.reshape(inputs, [-1, depth]), input_kernel)
        rows = tf.reshape(tf.nn.bias_add(rows, bias), [num_steps, -1, 4 * size])
        steps = zip(tf.unstack(rows), tf.unstack(reset, num_steps), strict=True)
        outputs = []
        for x, begins in steps:
            c, h = (_cleared(part, begins) for part in state)
            state = _step(x + tf.matmul(h, recurrent_kernel), c)
            outputs.append(state.h)
    return tf.stack(outputs), state


def _step(gates: tf.Tensor, c: tf.Tensor) -> LSTMState:
    """The next state, from sums [B, 4H] and cells [B, H]."""
    i, f, g, o = tf.split(gates, 4, axis=1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(g)
    return LSTMState(c, tf.sigmoid(o) * tf.tanh(c))


def _cleared(part: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
    return tf.where(begins, tf.zeros_like(part), part)


def _variable(name: str, shape: list[int], orthogonal: bool = False) -> tf.Variable:
    initializer = tf.orthogonal_initializer() if orthogonal else fan_in_initializer()
    return tf.get_variable(name, shape, initializer=initializer, use_resource=True)


def _check_sizes(
    inputs: tf.Tensor, reset: tf.Tensor, state: LSTMState
) -> tuple[int, int, int]:
    """T, D and H; ValueError where they are not known, or a rank is wrong."""
    shapes = [inputs.shape, reset.shape, state.c.shape, state.h.shape]
    if [shape.rank for shape in shapes] != [3, 2, 2, 2]:
        raise ValueError(f"expected [T, B, D], [T, B], [B, H], [B, H], got {shapes}")
    num_steps, depth, size = inputs.shape[0], inputs.shape[2], state.h.shape[1]
    if None in (num_steps, depth, size) or state.c.shape[1] != size:
        raise ValueError(f"T, D and H must be static and H one size, got {shapes}")
    if reset.shape[0] not in (None, num_steps):
        raise ValueError(f"{num_steps} inputs, but resets {reset.shape}")
    return num_steps, depth, size
