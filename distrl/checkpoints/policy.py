"""Policies: an acting graph with a session and parameters of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from distrl.cluster.local_session import local_callable, local_session
from distrl.core.core_states import RememberingPolicy
from distrl.core.nests import flatten_as, unflattener
from distrl.core.specs import EnvironmentSpec, Nest, leaf_names, leaves
from distrl.networks.placeholders import placeholders


class GreedyModel(Protocol):
    """What is needed of a model to act greedily."""

    @property
    def core_spec(self) -> Nest:
        """The state of one stream of a recurrent core, () without one."""

    def build_greedy(
        self, spec: EnvironmentSpec, observation_ph: Nest, core_ph: Nest
    ) -> tuple[Nest, dict[str, tf.Tensor]]:
        """What the environment takes, `[N, ...]` a leaf of its action, and by name what
        else an export holds `[N, ...]`; of that, "core_state/<path>" are the states
        behind the step. All its variables are parameters."""


class ActingModel(Protocol):
    """What is needed of a model with action values."""

    def build_acting(self, spec: EnvironmentSpec, observation_ph: Nest) -> tf.Tensor:
        """Action values `[N, A]`; all its variables are parameters."""


class PolicySession:
    """The outputs of a graph under parameters that can be exchanged.

        session = PolicySession(build, {"observation": spec.observation})
        session.load(unflatten_parameters(data, session.parameter_specs))
        outputs = session.run(observation)

    `build` gets placeholders `[None, ...]`, a nest for each of `inputs`, as keywords.
    Parameters start with what `seed` initialises. The graph is finalized, the session
    runs in the calling thread and on the CPU; `close()` ends it.
    """

    def __init__(
        self,
        build: Callable[..., Sequence[tf.Tensor]],
        inputs: Mapping[str, Nest],
        seed: int = 0,
    ):
        self._inputs = list(inputs.values())
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(seed)
            given = {name: placeholders(spec, name) for name, spec in inputs.items()}
            outputs = build(**given)
            self._variables = tf.global_variables()
            loading, load_op = build_loading(self._variables)
            init_op = tf.global_variables_initializer()
            graph.finalize()
        self._session = local_session(graph)
        self._session.run(init_op)
        feeds = [leaf for nest in given.values() for leaf in leaves(nest)]
        self._run = local_callable(self._session, outputs, feeds)
        self._load = local_callable(self._session, [], loading, [load_op])

    @property
    def parameter_specs(self) -> list[ParameterSpec]:
        """Name, shape and dtype of every parameter, in the order of `load`."""
        return parameter_specs(self._variables)

    def run(self, *values: Nest) -> list[np.ndarray]:
        """The outputs for inputs `[N, ...]`, any N, in the order of `inputs`.

        Raises ValueError, naming the leaf, for one that does not fit its spec.
        """
        pairs = zip(self._inputs, values, strict=True)
        return self._run(*[leaf for pair in pairs for leaf in flatten_as(*pair)])

    def load(self, parameters: Sequence[np.ndarray]) -> None:
        """Exchanges all parameters, given in the order of `parameter_specs`.

        Raises ValueError, naming the parameter, when one does not fit.
        """
        check_parameters(self.parameter_specs, parameters)
        self._load(*parameters)

    def close(self) -> None:
        """Ends the session; the policy cannot be used any more."""
        self._session.close()


class LocalPolicy(PolicySession):
    """Action values under parameters that can be exchanged."""

    def __init__(self, model: ActingModel, spec: EnvironmentSpec, seed: int = 0):
        super().__init__(
            lambda observation: [model.build_acting(spec, observation)],
            {"observation": spec.observation},
            seed,
        )

    def action_values(self, observation: Nest) -> np.ndarray:
        """float32 `[N, A]` of observations `[N, ...]`, any N.

        Raises ValueError, naming the leaf, for one that does not fit the spec.
        """
        return self.run(observation)[0]


class GreedyPolicy:
    """The best actions under parameters that are given by name."""

    def __init__(
        self,
        model: GreedyModel,
        spec: EnvironmentSpec,
        parameters: Mapping[str, np.ndarray],
    ):
        """`parameters` may hold more than the policy needs, such as a checkpoint.

        Raises ConfigError for actions that the model cannot choose, ValueError for
        parameters that are missing or do not fit.
        """

        self.core_spec = core = model.core_spec

        def build(observation: Nest, core_state: Nest) -> list[tf.Tensor]:
            action, others = model.build_greedy(spec, observation, core_state)
            state = [others[name] for name in leaf_names("core_state", core)]
            return [*flatten_as(spec.action, action), *state]

        inputs = {"observation": spec.observation, "core_state": core}
        self._session = PolicySession(build, inputs)
        self._action, self._core_state = unflattener(spec.action), unflattener(core)
        self._num_actions = len(leaves(spec.action))
        self._policy = RememberingPolicy(self.step, core)
        self.load(parameters)

    def act(self, observation: Nest, began: np.ndarray | None = None) -> Nest:
        """What the environment takes, in its numbering, `[N, ...]` a leaf.

        `began`, bool `[N]`, is True where an observation is the first of its episode
        (None: nowhere); it matters to a policy with a memory, whose rows go on from
        those of the call before. Another N starts all of them anew.
        """
        return self._policy.act(observation, began)

    def step(self, observation: Nest, core_state: Nest) -> tuple[Nest, Nest]:
        """Actions, and states behind the step, `[N, ...]`, of the states before it: for
        callers who keep them."""
        outputs, number = self._session.run(observation, core_state), self._num_actions
        return self._action(outputs[:number]), self._core_state(outputs[number:])

    def load(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Exchanges the parameters; the same errors as at first."""
        self._session.load(select_parameters(self._session.parameter_specs, parameters))

    def close(self) -> None:
        """Ends the session; the policy cannot be used any more."""
        self._session.close()
