"""Policies: an acting graph with a session and parameters of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.parameters import ParameterSpec
from distrl.checkpoints.variables import (
    build_loading,
    check_parameters,
    parameter_specs,
    select_parameters,
)
from distrl.cluster.local_session import local_callable, local_session_config
from distrl.core.nests import flatten_as
from distrl.core.specs import EnvironmentSpec, Nest, leaves
from distrl.networks.discrete import discrete_action, smallest_value
from distrl.networks.placeholders import placeholders


class ActingModel(Protocol):
    """What a policy needs of a model: its acting graph."""

    def build_acting(self, spec: EnvironmentSpec, observation_ph: Nest) -> tf.Tensor:
        """Action values `[N, A]`; all its variables are parameters."""


class LocalPolicy:
    """Action values under parameters that can be exchanged.

        policy = LocalPolicy(model, spec)
        policy.load(unflatten_parameters(data, policy.parameter_specs))
        values = policy.action_values(observation)

    It starts with what `seed` initialises. The graph is finalized, the session runs
    in the calling thread and on the CPU; `close()` ends it.
    """

    def __init__(self, model: ActingModel, spec: EnvironmentSpec, seed: int = 0):
        self._spec = spec
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(seed)
            observation_ph = placeholders(spec.observation, "observation")
            values = model.build_acting(spec, observation_ph)
            self._variables = tf.global_variables()
            loading, load_op = build_loading(self._variables)
            init_op = tf.global_variables_initializer()
            graph.finalize()
        self._session = tf.Session(graph=graph, config=local_session_config())
        self._session.run(init_op)
        self._run = local_callable(self._session, [values], leaves(observation_ph))
        self._load = local_callable(self._session, [], loading, [load_op])

    @property
    def parameter_specs(self) -> list[ParameterSpec]:
        """Name, shape and dtype of every parameter, in the order of `load`."""
        return parameter_specs(self._variables)

    def action_values(self, observation: Nest) -> np.ndarray:
        """float32 `[N, A]` of observations `[N, ...]`, any N.

        Raises ValueError, naming the leaf, for one that does not fit the spec.
        """
        return self._run(*flatten_as(self._spec.observation, observation))[0]

    def load(self, parameters: Sequence[np.ndarray]) -> None:
        """Exchanges all parameters, given in the order of `parameter_specs`.

        Raises ValueError, naming the parameter, when one does not fit.
        """
        check_parameters(self.parameter_specs, parameters)
        self._load(*parameters)

    def close(self) -> None:
        """Ends the session; the policy cannot be used any more."""
        self._session.close()


class GreedyPolicy:
    """The best actions under parameters that are given by name."""

    def __init__(
        self,
        model: ActingModel,
        spec: EnvironmentSpec,
        parameters: Mapping[str, np.ndarray],
    ):
        """`parameters` may hold more than the policy needs, such as a checkpoint.

        Raises ConfigError unless the action is discrete, ValueError for parameters
        that are missing or do not fit.
        """
        self._action = discrete_action(spec)
        self._policy = LocalPolicy(model, spec)
        self.load(parameters)

    def act(self, observation: Nest) -> np.ndarray:
        """The first of the best actions, in the environment's numbering, `[N]`."""
        best = self._policy.action_values(observation).argmax(axis=1)
        return (best + smallest_value(self._action)).astype(self._action.dtype)

    def load(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Exchanges the parameters; the same errors as at first."""
        self._policy.load(select_parameters(self._policy.parameter_specs, parameters))

    def close(self) -> None:
        """Ends the session; the policy cannot be used any more."""
        self._policy.close()
