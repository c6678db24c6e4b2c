"""Deep Q-learning as graphs: double, dueling, with priorities and weights."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

from distrl.core.records import ReplayBatch, Transition
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.losses.value import DoubleQExtra, double_q_learning
from distrl.models.learning_graph import LearningGraph
from distrl.networks.action_mask import only_legal, split_mask
from distrl.networks.discrete import discrete_action, greedy_action, indices
from distrl.networks.q_network import q_network

Network = Callable[[EnvironmentSpec, Nest], tf.Tensor]


class DQNModel:
    """The acting and learning graphs of (double) DQN for one discrete action.

    `network(spec, observation)` returns action values `[B, A]`; it is called several
    times and makes its variables with `tf.get_variable`. `target_update_period` is in
    learner steps; whoever owns the session keeps to it. Where observations have an
    "action_mask" (see `networks.action_mask`), only legal actions are chosen, in acting
    and in targets; the network does not see the mask.
    """

    core_spec: Nest = ()  # it has no memory

    def __init__(
        self,
        network: Network = q_network,
        learning_rate: float = 1e-3,
        adam_epsilon: float = 1e-8,
        max_gradient_norm: float = 40.0,
        double: bool = True,
        huber_delta: float = 1.0,
        target_update_period: int = 500,
    ):
        """Raises ValueError for a number that is not above 0."""
        numbers = {
            "learning_rate": learning_rate,
            "adam_epsilon": adam_epsilon,
            "max_gradient_norm": max_gradient_norm,
            "huber_delta": huber_delta,
            "target_update_period": target_update_period,
        }
        for name, number in numbers.items():
            if not number > 0:
                raise ValueError(f"{name} must be above 0, got {number}")
        self.target_update_period = target_update_period
        self._network = network
        self._learning_rate = learning_rate
        self._adam_epsilon = adam_epsilon
        self._max_gradient_norm = max_gradient_norm
        self._double = double
        self._huber_delta = huber_delta

    def check(self, spec: EnvironmentSpec) -> None:
        """Raises ConfigError, naming the spec, unless the action is discrete."""
        discrete_action(spec)

    def build_acting(self, spec: EnvironmentSpec, observation_ph: Nest) -> tf.Tensor:
        """Action values `[N, A]`, ILLEGAL for what a mask forbids; the variables are in
        the scope "online"."""
        values, legal = self._values("online", spec, observation_ph)
        return only_legal(values, legal)

    def build_greedy(
        self, spec: EnvironmentSpec, observation_ph: Nest, core_ph: Nest = ()
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The best actions as the environment counts, `[N]`, and "action_values"."""
        values = self.build_acting(spec, observation_ph)
        return greedy_action(spec, values), {"action_values": values}

    def build_learning(
        self, spec: EnvironmentSpec, batch: ReplayBatch
    ) -> LearningGraph:
        """The training step of a batch, in the current graph.

        The target network starts with values of its own: run `target_update_op` once
        the variables are initialised.
        """
        loss, q_tm1, extra = self._loss(spec, batch)
        online, target = tf.global_variables("online/"), tf.global_variables("target/")
        with tf.variable_scope("learning"):
            train_op, gradient_norm, slots = self._train(loss)
            copies = [to.assign(v) for to, v in zip(target, online, strict=True)]
            metrics = {
                "loss": loss,
                "mean_q": tf.reduce_mean(q_tm1),
                "gradient_norm": gradient_norm,
            }
            priorities = tf.abs(extra.td_error)
        return LearningGraph(
            train_op,
            priorities,
            loss,
            metrics,
            parameters=online,
            target_update_op=tf.group(*copies),
            target_update_period=self.target_update_period,
            variables=[*online, *target, *slots],
        )

    def _loss(
        self, spec: EnvironmentSpec, batch: ReplayBatch
    ) -> tuple[tf.Tensor, tf.Tensor, DoubleQExtra]:
        """Loss [], the online values of what is legal at s_tm1, [B, A] or flat, and
        what else is known."""
        data: Transition = batch.transition
        q_tm1, legal_tm1 = self._values("online", spec, data.s_tm1)
        q_t_value, legal_t = self._values("target", spec, data.s_t)
        # A pass of its own: joined with s_tm1 it would go through the backward pass
        # as well (measured: a fifth more CPU a step).
        selector = q_t_value
        if self._double:
            selector, _ = self._values("online", spec, data.s_t)
        losses, extra = double_q_learning(
            q_tm1,
            indices(discrete_action(spec), data.a_tm1),
            data.r_t,
            data.discount_t,
            q_t_value,
            only_legal(selector, legal_t),
            self._huber_delta,
        )
        if legal_tm1 is not None:
            q_tm1 = tf.boolean_mask(q_tm1, legal_tm1)
        return tf.reduce_mean(batch.weight * losses), q_tm1, extra

    def _values(
        self, scope: str, spec: EnvironmentSpec, observation: Nest
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Values [B, A], and which actions are legal (None: all)."""
        masked = split_mask(spec, observation)
        with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
            return self._network(masked.spec, masked.observation), masked.legal

    def _train(
        self, loss: tf.Tensor
    ) -> tuple[tf.Operation, tf.Tensor, list[tf.Variable]]:
        """The update, the norm of the gradient before clipping, Adam's variables."""
        variables = tf.trainable_variables("online/")
        gradients, norm = tf.clip_by_global_norm(
            tf.gradients(loss, variables), self._max_gradient_norm
        )
        adam = tf.train.AdamOptimizer(self._learning_rate, epsilon=self._adam_epsilon)
        train_op = adam.apply_gradients(zip(gradients, variables, strict=True))
        return train_op, norm, adam.variables()
