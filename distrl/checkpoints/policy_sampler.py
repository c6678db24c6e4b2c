"""Stochastic policies: an acting graph with a session and parameters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.parameters import ParameterSpec
from distrl.checkpoints.variables import (
    build_loading,
    check_parameters,
    parameter_specs,
)
from distrl.cluster.local_session import local_callable, local_session
from distrl.core.core_states import RememberingPolicy
from distrl.core.nests import flatten_as, unflattener
from distrl.core.specs import EnvironmentSpec, Nest, leaves
from distrl.networks.distributions import DistributionFactory
from distrl.networks.placeholders import placeholders


class SamplingModel(Protocol):
    """What a sampler needs of a model."""

    def distribution(self, action_spec: Nest, /) -> DistributionFactory:
        """The kind of distribution of the actions."""

    @property
    def core_spec(self) -> Nest:
        """The state of a recurrent core for one stream, () without one."""

    def build_acting(
        self,
        spec: EnvironmentSpec,
        observation_ph: Nest,
        seed_ph: tf.Tensor,
        core_ph: Nest,
    ) -> Any:
        """`raw_action`, `log_prob`, `value`, `behaviour`, `mode`, `core_state`; all
        variables are parameters."""


class SampledActions(NamedTuple):
    """What a policy did in N streams, and what it made of them."""

    raw_action: Nest  # [N, ...]
    log_prob: Any  # float32 [N]
    value: Any  # float32 [N]
    behaviour: Any  # float32 [N, P], parameters of the distribution
    core_state: Nest = ()  # [N, ...], behind the step


class PolicySampler:
    """Actions and values under parameters that can be exchanged.

        sampler = PolicySampler(model, spec)
        sampler.load(unflatten_parameters(data, sampler.parameter_specs))
        acted = sampler.act(observation, (task_seed, actor_steps))
        environment.step(sampler.to_environment(acted.raw_action))

    With a recurrent core, the caller keeps the states of its streams: each call is
    given those from before the step, cleared where an episode begins.

    It starts with what `seed` initialises. The graph is finalized, the session runs
    in the calling thread and on the CPU; `close()` ends it. Observations are `[N, ...]`
    for any N; all three calls raise ValueError, naming the leaf, for one that does not
    fit the spec.
    """

    def __init__(self, model: SamplingModel, spec: EnvironmentSpec, seed: int = 0):
        """Raises ConfigError, naming the leaf, for actions without a distribution."""
        self._spec = spec
        factory = model.distribution(spec.action)
        self.raw_spec, self.to_environment = factory.raw_spec, factory.to_environment
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(seed)
            observation_ph = placeholders(spec.observation, "observation")
            seed_ph = tf.placeholder(tf.int32, [2], "seed")
            core_ph = placeholders(model.core_spec, "core_state")
            acting = model.build_acting(spec, observation_ph, seed_ph, core_ph)
            self._variables = tf.global_variables()
            loading, load_op = build_loading(self._variables)
            init_op = tf.global_variables_initializer()
            graph.finalize()
        self._session = session = local_session(graph)
        session.run(init_op)
        feeds = [*leaves(observation_ph), *leaves(core_ph)]
        raw, state = leaves(acting.raw_action), leaves(acting.core_state)
        sampled = [acting.log_prob, acting.value, acting.behaviour, *raw, *state]
        self._act = local_callable(session, sampled, [*feeds, seed_ph])
        self._value = local_callable(session, [acting.value], feeds)
        self._mode = local_callable(session, [*leaves(acting.mode), *state], feeds)
        self._load = local_callable(session, [], loading, [load_op])
        self.core_spec = model.core_spec
        self._num_actions = len(raw)
        self._raw_action = unflattener(self.raw_spec)
        self._core_state = unflattener(self.core_spec)
        self._greedy = RememberingPolicy(self._greedy_step, self.core_spec)

    @property
    def parameter_specs(self) -> list[ParameterSpec]:
        """Name, shape and dtype of every parameter, in the order of `load`."""
        return parameter_specs(self._variables)

    def act(
        self,
        observation: Nest,
        seed: Sequence[int] | np.ndarray,
        core_state: Nest = (),
    ) -> SampledActions:
        """Random actions, the same ones for equal arguments and parameters.

        `seed` is two numbers of int32; use no pair twice.
        """
        pair = np.asarray(seed, np.int32)
        feeds = self._feeds(observation, core_state)
        log_prob, value, behaviour, *rest = self._act(*feeds, pair)
        raw, state = self._split(rest)
        return SampledActions(raw, log_prob, value, behaviour, state)

    def value(self, observation: Nest, core_state: Nest = ()) -> np.ndarray:
        """float32 `[N]`."""
        return self._value(*self._feeds(observation, core_state))[0]

    def greedy(self, observation: Nest, began: np.ndarray | None = None) -> Nest:
        """The most probable actions `[N, ...]`, as the environment takes them.

        With a recurrent core, rows go on from those of the call before, but for those
        that `began`, bool `[N]`: the first of their episode.
        """
        return self._greedy.act(observation, began)

    def _greedy_step(self, observation: Nest, core_state: Nest) -> tuple[Nest, Nest]:
        """Actions and the states behind the step."""
        raw, state = self._split(self._mode(*self._feeds(observation, core_state)))
        return self.to_environment(raw), state

    def load(self, parameters: Sequence[np.ndarray]) -> None:
        """Exchanges all parameters, given in the order of `parameter_specs`.

        Raises ValueError, naming the parameter, when one does not fit.
        """
        check_parameters(self.parameter_specs, parameters)
        self._load(*parameters)

    def close(self) -> None:
        """Ends the session; the sampler cannot be used any more."""
        self._session.close()

    def _feeds(self, observation: Nest, core_state: Nest) -> list[np.ndarray]:
        state = flatten_as(self.core_spec, core_state)
        return [*flatten_as(self._spec.observation, observation), *state]

    def _split(self, arrays: list[np.ndarray]) -> tuple[Nest, Nest]:
        """Raw actions and core states."""
        number = self._num_actions
        return self._raw_action(arrays[:number]), self._core_state(arrays[number:])
