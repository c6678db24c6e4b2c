"""Networks from observations to the parameters of a policy and to state values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow.compat.v1 as tf

from distrl.core.specs import EnvironmentSpec, Nest
from distrl.networks.layers import Activation, dense
from distrl.networks.recurrent import LSTMState, lstm
from distrl.networks.torsos import flat_observation

Torso = Callable[[Nest, Nest], tf.Tensor]


def orthogonal_mlp(
    observation_spec: Nest,
    observation: Nest,
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Activation = tf.nn.tanh,
) -> tf.Tensor:
    """A torso like `mlp`, with orthogonal kernels of gain √2 and tanh.

    float32 `[B, hidden_sizes[-1]]`. As in the program of PPO's authors.
    """
    x = flat_observation(observation_spec, observation)
    gain = tf.orthogonal_initializer(math.sqrt(2.0))
    for index, size in enumerate(hidden_sizes):
        x = dense(x, size, f"hidden_{index}", activation, gain)
    return x


def policy_value_network(
    spec: EnvironmentSpec,
    observation: Nest,
    num_parameters: int,
    torso: Torso = orthogonal_mlp,
    shared: bool = False,
    policy_gain: float = 0.01,
    value_gain: float = 1.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Parameters of the policy, float32 `[B, num_parameters]`, and values `[B]`.

    Each has a torso of its own; with `shared`, better where the torso is expensive
    (images), both have the same one. Heads are dense layers with orthogonal kernels,
    that of the policy nearly 0, so that the first policy hardly prefers any action.
    """
    scopes = ("torso", "torso") if shared else ("policy_torso", "value_torso")
    features = {}
    for scope in dict.fromkeys(scopes):
        with tf.variable_scope(scope):
            features[scope] = torso(spec.observation, observation)
    policy, value = (features[scope] for scope in scopes)
    return _heads(policy, value, num_parameters, policy_gain, value_gain)


def recurrent_policy_value_network(
    spec: EnvironmentSpec,
    observation: Nest,
    reset: tf.Tensor,
    state: LSTMState,
    num_steps: int,
    num_parameters: int,
    torso: Torso = orthogonal_mlp,
    policy_gain: float = 0.01,
    value_gain: float = 1.0,
) -> tuple[tf.Tensor, tf.Tensor, LSTMState]:
    """The same behind a shared torso and an LSTM: parameters, values, the last state.

    Observations of `num_steps` rows of B streams, time-major and joined to
    `[num_steps · B, ...]`; so are `reset`, bool, True where a row is the first of an
    episode, and both results. `state` is float32 `[B, H]` each, from before the first
    row; H is the size of the LSTM. `num_steps` is 1 for acting. Raises ValueError for a
    static number of rows that it does not divide, and a `num_steps` below 1.
    """
    with tf.variable_scope("torso"):
        features = torso(spec.observation, observation)
    if num_steps < 1 or (features.shape[0] or 0) % num_steps:
        raise ValueError(f"{features.shape[0]} rows are not {num_steps} steps")
    size = state.h.shape[1]
    outputs, state = lstm(
        tf.reshape(features, [num_steps, -1, features.shape[1]]),
        tf.reshape(reset, [num_steps, -1]),
        state,
    )
    x = tf.reshape(outputs, [-1, size])
    heads = _heads(x, x, num_parameters, policy_gain, value_gain)
    return *heads, state


def _heads(
    policy: tf.Tensor,
    value: tf.Tensor,
    num_parameters: int,
    policy_gain: float,
    value_gain: float,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Parameters [B, P] and values [B] of features [B, D]."""
    small = tf.orthogonal_initializer(policy_gain)
    parameters = dense(policy, num_parameters, "policy_head", None, small)
    plain = tf.orthogonal_initializer(value_gain)
    return parameters, tf.squeeze(dense(value, 1, "value_head", None, plain), axis=1)
