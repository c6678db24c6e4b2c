"""The policy of evolution strategies: deterministic, nothing to differentiate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec, Nest, describe, named_leaves
from distrl.networks.action_mask import ACTION_MASK, has_mask
from distrl.networks.bounded_action import BoundedAction
from distrl.networks.discrete import greedy_action
from distrl.networks.layers import dense, fan_in_initializer
from distrl.networks.normaliser import normalised
from distrl.networks.torsos import flat_observation


class ESModel:
    """An MLP (tanh) from observations to actions.

    A discrete action is the one with the largest output; real ones are tanh of the
    outputs, between the bounds. The statistics of observations are parameters, ahead of
    the network's, and are not perturbed. Other torsos are not offered, for `Population`
    evaluates all perturbed networks at once and has to know the layers. As the networks
    of Salimans et al. 2017 for MuJoCo.
    """

    core_spec: Nest = ()  # it has no memory

    def __init__(
        self,
        hidden_sizes: Sequence[int] = (64, 64),
        normalise_observations: bool = True,
    ):
        """Raises ConfigError for a layer without units."""
        if any(size < 1 for size in hidden_sizes):
            raise ConfigError(f"ESModel.hidden_sizes must be > 0, got {hidden_sizes}")
        self.hidden_sizes = tuple(hidden_sizes)
        self.normalise_observations = normalise_observations

    def check(self, spec: EnvironmentSpec) -> None:
        """Raises ConfigError for actions that it cannot choose, for a mask of actions,
        and when there is nothing to normalise though it should."""
        self.num_outputs(spec)
        if has_mask(spec):
            raise ConfigError(f"ESModel heeds no {ACTION_MASK}")
        if self.normalise_observations and not self.normalised_leaves(spec):
            raise ConfigError(
                "only floating-point observations can be normalised, got "
                f"{describe(spec.observation)}"
            )

    def num_outputs(self, spec: EnvironmentSpec) -> int:
        """How many numbers the network computes. Raises ConfigError, as `check`."""
        action = spec.action
        try:
            return BoundedAction(spec).num_elements if is_real(action) else _num(action)
        except (AttributeError, ValueError) as error:
            raise ConfigError(
                "ESModel needs one bounded integer, or one array of real numbers with "
                f"finite bounds, as its action, got {describe(action)}"
            ) from error

    def normalised_leaves(self, spec: EnvironmentSpec) -> list[tuple[str, ArraySpec]]:
        """Paths and specs of the leaves with statistics; none without a normaliser."""
        if not self.normalise_observations:
            return []
        return [
            (path, leaf)
            for path, leaf in named_leaves(spec.observation)
            if np.issubdtype(np.dtype(leaf.dtype), np.floating)
        ]

    def build_greedy(
        self, spec: EnvironmentSpec, observation_ph: Nest, core_ph: Nest = ()
    ) -> tuple[Nest, dict[str, tf.Tensor]]:
        """Actions `[N, ...]`, and the network's outputs float32 `[N, num_outputs]`.

        All variables are parameters: mean, variance and count of each normalised leaf,
        then kernel and bias of each layer. The last layer's outputs are small at first.
        """
        num_outputs, observation = self.num_outputs(spec), observation_ph
        if self.normalise_observations:
            observation, _ = normalised(spec.observation, observation)
        with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
            x = flat_observation(spec.observation, observation)
            for index, size in enumerate(self.hidden_sizes):
                x = dense(x, size, f"hidden_{index}", tf.nn.tanh)
            # A hundredth of the usual deviation, as in the paper's code.
            outputs = dense(x, num_outputs, "action", None, fan_in_initializer(1e-4))
        if is_real(spec.action):
            action = BoundedAction(spec).to_environment(tf.nn.tanh(outputs))
        else:
            action = greedy_action(spec, outputs)
        return action, {"outputs": outputs}


def is_real(action: Nest) -> bool:
    """Whether the action is one array of real numbers."""
    return isinstance(action, ArraySpec) and np.issubdtype(
        np.dtype(action.dtype), np.floating
    )


def _num(action: Nest) -> int:
    return action.num_values
