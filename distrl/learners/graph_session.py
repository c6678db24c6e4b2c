"""A learning graph in a local session, whatever it trains on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.parameters import ParameterSpec
from distrl.checkpoints.variables import (
    build_loading,
    parameter_specs,
    select_parameters,
)
from distrl.cluster.local_session import local_callable, local_session


class GraphSession:
    """The variables of a learning graph: those that acting needs, and all.

    A subclass builds the graph, hands it over, and adds the training.
    """

    def __init__(
        self,
        graph: tf.Graph,
        parameters: Sequence[tf.Variable],
        variables: Sequence[tf.Variable],
        num_threads: int,
    ):
        """Finalizes the graph, and initialises `variables`; `num_threads` share an
        operation."""
        with graph.as_default():
            initialise = tf.variables_initializer(variables)
            values, load = build_loading(variables)
        graph.finalize()
        gpu = bool(tf.config.list_physical_devices("GPU"))
        self._session = session = local_session(graph, num_threads, gpu)
        session.run(initialise)
        self._parameters = local_callable(session, parameters, [])
        self._variables = local_callable(session, variables, [])
        self._load = local_callable(session, [], values, [load])
        self._variable_specs = parameter_specs(variables)
        self.parameter_specs: list[ParameterSpec] = parameter_specs(parameters)
        self.learner_steps = 0

    def parameters(self) -> list[np.ndarray]:
        """What acting needs, in the order of `parameter_specs`."""
        return [np.asarray(array) for array in self._parameters()]  # no np.int64

    def named(self, parameters: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Parameters in the order of `parameter_specs`, by their names."""
        names = [spec.name for spec in self.parameter_specs]
        return dict(zip(names, parameters, strict=True))

    def state(self) -> dict[str, np.ndarray]:
        """Every variable by its name."""
        names = [spec.name for spec in self._variable_specs]
        return dict(zip(names, map(np.asarray, self._variables()), strict=True))

    def restore(self, state: Mapping[str, np.ndarray], learner_steps: int) -> None:
        """Raises ValueError, naming the variable, for what is missing or differs."""
        self._load(*select_parameters(self._variable_specs, state))
        self.learner_steps = learner_steps

    def close(self) -> None:
        self._session.close()
