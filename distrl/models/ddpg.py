"""Deep deterministic policy gradients as graphs, with priorities and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.records import ReplayBatch, Transition
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.losses.continuous import (
    CriticExtra,
    deterministic_critic,
    deterministic_policy_gradient,
    polyak_update,
)
from distrl.losses.value import huber
from distrl.models.learning_graph import LearningGraph
from distrl.networks.action_mask import ACTION_MASK, has_mask
from distrl.networks.bounded_action import BoundedAction
from distrl.networks.deterministic import critic_network, deterministic_policy_network

#: (spec, observation, number of elements) -> float32 [B, E], not yet bounded.
PolicyNetwork = Callable[[EnvironmentSpec, Nest, int], tf.Tensor]
#: (spec, observation, elements [B, E] from −1 to 1) -> values, float32 [B].
CriticNetwork = Callable[[EnvironmentSpec, Nest, tf.Tensor], tf.Tensor]


class NoisyActing(NamedTuple):
    """Actions with noise, and what they and those without it are worth."""

    action: tf.Tensor  # [N, *shape], what the environment takes
    value_taken: tf.Tensor  # float32 [N], Q(s, action)
    value_max: tf.Tensor  # float32 [N], Q(s, μ(s))


class _Update(NamedTuple):
    """A step of Adam that is not made yet."""

    gradients: list[tf.Tensor]  # clipped
    norm: tf.Tensor  # before clipping
    variables: list[tf.Variable]
    learning_rate: float
    scope: str


class DDPGModel:
    """The acting and learning graphs of DDPG, for one array of bounded real numbers.

        target      = r_t + discount_t · Q'(s_t, μ'(s_t))
        critic loss = mean of weight · (target − Q(s_tm1, a_tm1))² / 2
        policy loss = mean of −Q(s_tm1, μ(s_tm1)), for the policy only
        Q' := polyak · Q' + (1 − polyak) · Q, and μ' alike, in every learner step

    With `huber_delta` the critic's errors count linearly beyond it. The policy's output
    is squashed by tanh into the bounds of the spec; networks see actions from −1 to 1.
    Lillicrap et al. 2016, "Continuous control with deep reinforcement learning";
    priorities and n steps as in Horgan et al. 2018, section 4.2.
    """

    core_spec: Nest = ()  # it has no memory

    def __init__(
        self,
        policy_network: PolicyNetwork = deterministic_policy_network,
        critic_network: CriticNetwork = critic_network,
        policy_learning_rate: float = 1e-4,
        critic_learning_rate: float = 1e-3,
        adam_epsilon: float = 1e-8,
        max_gradient_norm: float = 40.0,
        huber_delta: float | None = None,
        polyak: float = 0.995,
    ):
        """Both gradients are clipped at `max_gradient_norm`, each by itself. Raises
        ValueError for a number that is not above 0, and a polyak outside [0, 1)."""
        numbers = {
            "policy_learning_rate": policy_learning_rate,
            "critic_learning_rate": critic_learning_rate,
            "adam_epsilon": adam_epsilon,
            "max_gradient_norm": max_gradient_norm,
            "huber_delta": 1.0 if huber_delta is None else huber_delta,
        }
        for name, number in numbers.items():
            if not number > 0:
                raise ValueError(f"{name} must be above 0, got {number}")
        if not 0 <= polyak < 1:
            raise ValueError(f"polyak must be in [0, 1), got {polyak}")
        self._policy_network, self._critic_network = policy_network, critic_network
        self._policy_learning_rate = policy_learning_rate
        self._critic_learning_rate = critic_learning_rate
        self._adam_epsilon = adam_epsilon
        self._max_gradient_norm = max_gradient_norm
        self._huber_delta = huber_delta
        self._polyak = polyak

    def check(self, spec: EnvironmentSpec) -> None:
        """Raises ConfigError, naming the spec, unless actions are bounded reals, and
        for a mask of actions."""
        BoundedAction(spec)
        if has_mask(spec):
            raise ConfigError(f"DDPGModel heeds no {ACTION_MASK}")

    def build_acting(
        self, spec: EnvironmentSpec, observation_ph: Nest, noise_ph: tf.Tensor
    ) -> NoisyActing:
        """Actions with noise float32 `[N, E]`, in units of half the bounds' distance.

        An actor needs the critic too, for the first priorities: the variables are those
        of the policy, then those of the critic.
        """
        bounded = BoundedAction(spec)
        best = self._policy("policy", bounded, spec, observation_ph)
        taken = tf.clip_by_value(best + noise_ph, -1.0, 1.0)
        return NoisyActing(
            bounded.to_environment(taken),
            self._critic("critic", spec, observation_ph, taken),
            self._critic("critic", spec, observation_ph, best),
        )

    def build_greedy(
        self, spec: EnvironmentSpec, observation_ph: Nest, core_ph: Nest = ()
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """μ(s) as the environment takes it, `[N, *shape]`; "value" is Q(s, μ(s))."""
        bounded = BoundedAction(spec)
        best = self._policy("policy", bounded, spec, observation_ph)
        value = self._critic("critic", spec, observation_ph, best)
        return bounded.to_environment(best), {"value": value}

    def build_learning(
        self, spec: EnvironmentSpec, batch: ReplayBatch
    ) -> LearningGraph:
        """The training step of a batch, in the current graph.

        The target networks start with values of their own: run `target_update_op` once
        the variables are initialised. After that `train_op` moves them.
        """
        bounded = BoundedAction(spec)
        critic_loss, q_tm1, extra = self._critic_loss(bounded, spec, batch)
        policy_loss = self._policy_loss(bounded, spec, batch.transition.s_tm1)
        online = [*_variables("policy"), *_variables("critic")]
        target = [*_variables("target_policy"), *_variables("target_critic")]
        updates = [
            self._update(policy_loss, "policy", self._policy_learning_rate),
            self._update(critic_loss, "critic", self._critic_learning_rate),
        ]
        metrics = {
            "loss": critic_loss,
            "policy_loss": policy_loss,
            "mean_q": tf.reduce_mean(q_tm1),
            "policy_gradient_norm": updates[0].norm,
            "gradient_norm": updates[1].norm,
        }
        priorities = tf.abs(extra.td_error)
        with tf.variable_scope("learning"):
            read = [priorities, *metrics.values()]
            applied, slots = self._apply(updates, read)
            with tf.control_dependencies([applied]):
                train_op = polyak_update(target, online, self._polyak)
        return LearningGraph(
            train_op,
            priorities,
            critic_loss,
            metrics,
            parameters=online,
            target_update_op=polyak_update(target, online, 0.0),
            target_update_period=None,
            variables=[*online, *target, *slots],
        )

    def _critic_loss(
        self, bounded: BoundedAction, spec: EnvironmentSpec, batch: ReplayBatch
    ) -> tuple[tf.Tensor, tf.Tensor, CriticExtra]:
        """Loss [], Q(s_tm1, a_tm1) [B], and what else is known."""
        data: Transition = batch.transition
        taken = bounded.elements(data.a_tm1)
        q_tm1 = self._critic("critic", spec, data.s_tm1, taken)
        best = self._policy("target_policy", bounded, spec, data.s_t)
        q_t = self._critic("target_critic", spec, data.s_t, best)
        losses, extra = deterministic_critic(q_tm1, data.r_t, data.discount_t, q_t)
        if self._huber_delta is not None:
            losses = huber(extra.td_error, self._huber_delta)
        return tf.reduce_mean(batch.weight * losses), q_tm1, extra

    def _policy_loss(
        self, bounded: BoundedAction, spec: EnvironmentSpec, observation: Nest
    ) -> tf.Tensor:
        best = self._policy("policy", bounded, spec, observation)
        q = self._critic("critic", spec, observation, best)
        return tf.reduce_mean(deterministic_policy_gradient(q, best))

    def _policy(
        self,
        scope: str,
        bounded: BoundedAction,
        spec: EnvironmentSpec,
        observation: Nest,
    ) -> tf.Tensor:
        """The elements of μ(s), [B, E], from −1 to 1."""
        with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
            return tf.tanh(
                self._policy_network(spec, observation, bounded.num_elements)
            )

    def _critic(
        self, scope: str, spec: EnvironmentSpec, observation: Nest, elements: tf.Tensor
    ) -> tf.Tensor:
        with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
            return self._critic_network(spec, observation, elements)

    def _update(self, loss: tf.Tensor, scope: str, learning_rate: float) -> _Update:
        variables = tf.trainable_variables(f"{scope}/")
        gradients, norm = tf.clip_by_global_norm(
            tf.gradients(loss, variables), self._max_gradient_norm
        )
        return _Update(gradients, norm, variables, learning_rate, scope)

    def _apply(
        self, updates: Sequence[_Update], read: Sequence[tf.Tensor]
    ) -> tuple[tf.Operation, list[tf.Variable]]:
        """All updates at once, behind all that is to be `read`; Adam's variables.

        Without the order the policy's gradient could be one of the updated critic.
        """
        before = [*read, *(g for update in updates for g in update.gradients)]
        applied, slots = [], []
        for update in updates:
            adam = tf.train.AdamOptimizer(
                update.learning_rate, epsilon=self._adam_epsilon
            )
            pairs = zip(update.gradients, update.variables, strict=True)
            with (
                tf.variable_scope(update.scope),
                tf.control_dependencies(before),
            ):
                applied.append(adam.apply_gradients(pairs))
            slots += adam.variables()
        return tf.group(*applied), slots


def _variables(scope: str) -> list[tf.Variable]:
    return tf.global_variables(f"{scope}/")
