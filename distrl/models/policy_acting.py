"""What models with a stochastic policy and values share: acting, and its networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from distrl.core.specs import EnvironmentSpec, Nest, leaf_names, leaves
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.action_mask import only_legal, split_mask
from distrl.networks.distributions import Distribution, DistributionFactory
from distrl.networks.normaliser import NormaliserVariables, normalised

Network = Callable[[EnvironmentSpec, Nest, int], tuple[tf.Tensor, tf.Tensor]]


class ActingGraph(NamedTuple):
    """Actions of N streams; all variables of the graph are parameters."""

    raw_action: Nest  # [N, ...], drawn by the seed
    log_prob: tf.Tensor  # float32 [N], of the drawn action
    value: tf.Tensor  # float32 [N]
    mode: Nest  # [N, ...], the greedy raw action
    core_state: Nest  # [N, ...], behind the step; () without a recurrent core
    behaviour: tf.Tensor  # float32 [N, P], what `behaviour_policy` takes


class Steps(NamedTuple):
    """What a network is given."""

    observation: Nest  # [num_steps · U, ...]
    reset: tf.Tensor | None  # bool [num_steps · U], None for never
    core_state: Nest  # [U, ...]
    num_steps: int


class Outputs(NamedTuple):
    """What the networks make of R = num_steps · U rows."""

    parameters: tf.Tensor  # float32 [R, num_parameters], of the distribution
    value: tf.Tensor  # float32 [R]
    core_state: Nest  # [U, ...], behind the last step
    normaliser: list[NormaliserVariables]  # of the observations


class PolicyModel:
    """The acting graphs of a policy with values, for any actions with a distribution.

    A model inherits it and adds the learning graph. All variables are in the scopes
    "normaliser" and "network" and are the parameters, in this order.
    """

    def __init__(
        self,
        network: Network,
        distribution: Callable[[Nest], DistributionFactory],
        core: RecurrentCore | None = None,
        normalise_observations: bool = False,
    ):
        """`network(spec, observation, num_parameters)` returns the parameters of the
        policy `[B, num_parameters]` and values `[B]`; that of a `core` takes its place.
        `distribution` makes that of an action spec."""
        self.distribution = distribution
        self.core = core
        self._network = network
        self._normalise_observations = normalise_observations

    @property
    def core_spec(self) -> Nest:
        """The state of one stream, () without a core."""
        return self.core.state_spec if self.core else ()

    def build_acting(
        self,
        spec: EnvironmentSpec,
        observation_ph: Nest,
        seed_ph: tf.Tensor,
        core_ph: Nest = (),
    ) -> ActingGraph:
        """Actions for observations `[N, ...]`, drawn by `seed_ph`, int32 `[2]`.

        `core_ph` is the state `[N, ...]` of a recurrent core, cleared where an episode
        begins. Raises ValueError for one without the other, and ConfigError, naming the
        leaf, for an action without a distribution.
        """
        outputs = self._acting_outputs(spec, observation_ph, core_ph)
        policy, behaviour = self._policy_and_behaviour(spec, outputs.parameters)
        action = policy.sample(seed_ph)
        log_prob, mode = policy.log_prob(action), policy.mode()
        state = outputs.core_state
        return ActingGraph(action, log_prob, outputs.value, mode, state, behaviour)

    def build_greedy(
        self, spec: EnvironmentSpec, observation_ph: Nest, core_ph: Nest = ()
    ) -> tuple[Nest, dict[str, tf.Tensor]]:
        """The most probable actions `[N, ...]` as the environment takes them, and the
        values `[N]`; the same parameters as the acting graph's.

        With a recurrent core also its states behind the step, named
        "core_state/<path>".
        """
        outputs = self._acting_outputs(spec, observation_ph, core_ph)
        policy = self._policy(spec, outputs.parameters)
        names = leaf_names("core_state", self.core_spec)
        states = dict(zip(names, leaves(outputs.core_state), strict=True))
        factory = self.distribution(spec.action)
        action = factory.to_environment_graph(policy.mode())
        return action, {"value": outputs.value, **states}

    def behaviour_size(self, spec: EnvironmentSpec) -> int:
        """P, the numbers that `ActingGraph.behaviour` has an action."""
        with tf.Graph().as_default():
            parameters = tf.zeros([1, self.distribution(spec.action).num_parameters])
            _, behaviour = self._policy_and_behaviour(spec, parameters)
            return int(behaviour.shape[1])

    def behaviour_policy(
        self, spec: EnvironmentSpec, behaviour: tf.Tensor
    ) -> Distribution:
        """The policy that acted, from the rows `[R, P]` that it left.

        It makes and reads no variable. Raises ValueError for another P.
        """
        factory = self.distribution(spec.action)
        size = self.behaviour_size(spec)
        if behaviour.shape.rank != 2 or behaviour.shape[1] != size:
            raise ValueError(
                f"expected behaviour [R, {size}], got shape {behaviour.shape}"
            )
        parameters, kept = tf.split(
            behaviour, [factory.num_parameters, size - factory.num_parameters], axis=1
        )
        with tf.variable_scope("network", custom_getter=_KeptVariables(kept)):
            return factory(parameters)

    def _acting_outputs(
        self, spec: EnvironmentSpec, observation: Nest, core_ph: Nest
    ) -> Outputs:
        if (self.core is None) != (core_ph == ()):
            raise ValueError(f"core is {self.core}, but its state {core_ph}")
        return self._outputs(spec, Steps(observation, None, core_ph, 1))

    def _outputs(self, spec: EnvironmentSpec, steps: Steps) -> Outputs:
        """The networks; variables are made where they do not exist yet. What a mask in
        the observations forbids has no chance."""
        normaliser: list[NormaliserVariables] = []
        spec, observation, legal = split_mask(spec, steps.observation)
        state = steps.core_state
        if self._normalise_observations:
            observation, normaliser = normalised(spec.observation, observation)
        size = self.distribution(spec.action).num_parameters
        with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
            if self.core is None:
                parameters, value = self._network(spec, observation, size)
            else:
                reset = steps.reset
                if reset is None:  # acting, where the state was cleared already
                    reset = tf.zeros_like(state[0][:, 0], tf.bool)
                parameters, value, state = self.core.network(
                    spec, observation, reset, state, steps.num_steps, size
                )
        value = self._in_units_of_reward(value)
        return Outputs(only_legal(parameters, legal), value, state, normaliser)

    def _in_units_of_reward(self, value: tf.Tensor) -> tf.Tensor:
        """The values that the network's outputs stand for."""
        return value

    def _policy(self, spec: EnvironmentSpec, parameters: tf.Tensor) -> Distribution:
        """The distributions with parameters [R, num_parameters]."""
        return self._policy_and_behaviour(spec, parameters)[0]

    def _policy_and_behaviour(
        self, spec: EnvironmentSpec, parameters: tf.Tensor
    ) -> tuple[Distribution, tf.Tensor]:
        """And behind the parameters, row by row, the variables of the distribution: the
        policy changes with them too, and they are others when the learner asks."""
        factory = self.distribution(spec.action)
        made: list[tf.Tensor] = []

        def noting(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            variable = getter(*args, **kwargs)
            made.append(tf.reshape(variable, [1, -1]))
            return variable

        with tf.variable_scope("network", reuse=tf.AUTO_REUSE, custom_getter=noting):
            policy = factory(parameters)
        return policy, _beside(parameters, made)


class _KeptVariables:
    """Gives a distribution, in place of its variables, what they were row by row."""

    def __init__(self, kept: tf.Tensor):
        self._left = kept  # [R, all their elements]

    def __call__(
        self, getter: Callable[..., Any], name: str, shape: Sequence[int], **_: Any
    ) -> tf.Tensor:
        (size,) = shape
        own, self._left = self._left[:, :size], self._left[:, size:]
        return own


def _beside(rows: tf.Tensor, others: list[tf.Tensor]) -> tf.Tensor:
    """[R, P + …] of [R, P] and what is [1, …] each and the same in all rows."""
    ones = tf.ones_like(rows[:, :1])
    return tf.concat([rows, *[ones * other for other in others]], axis=1)
