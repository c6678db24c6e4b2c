"""The memory of a recurrent policy, as an option of its model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow.compat.v1 as tf

from distrl.core.specs import EnvironmentSpec, Nest
from distrl.networks.policy_value_network import recurrent_policy_value_network
from distrl.networks.recurrent import LSTMState, lstm_state_spec

RecurrentNetwork = Callable[
    [EnvironmentSpec, Nest, tf.Tensor, LSTMState, int, int],
    tuple[tf.Tensor, tf.Tensor, LSTMState],
]


@dataclasses.dataclass(frozen=True)
class RecurrentCore:
    """An LSTM behind the torso, trained on unrolls from the states of acting.

    Actors clear the state where an episode begins and keep what it is before every
    `unroll_length`-th step; gradients reach back as far as the unroll does. The graph
    of the learner has a copy of the LSTM for each of its steps. Raises ValueError
    unless both numbers are at least 1.
    """

    size: int = 64  # of the state
    unroll_length: int = 16  # actor steps
    network: RecurrentNetwork = recurrent_policy_value_network

    def __post_init__(self) -> None:
        for name in ("size", "unroll_length"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1, got {getattr(self, name)}"
                )

    @property
    def state_spec(self) -> LSTMState:
        """Of one stream."""
        return lstm_state_spec(self.size)
