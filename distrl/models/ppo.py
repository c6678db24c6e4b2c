"""Proximal policy optimisation as graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from distrl.core.specs import ArraySpec, EnvironmentSpec, Nest
from distrl.losses.policy import clipped_surrogate, clipped_value_loss
from distrl.models.policy_acting import Network, PolicyModel, Steps
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.distributions import (
    Distribution,
    DistributionFactory,
    action_distribution,
)
from distrl.networks.normaliser import NormaliserVariables
from distrl.networks.policy_value_network import policy_value_network


class PPOBatch(NamedTuple):
    """Rows to train on: what was done, and what became of it."""

    observation: Nest  # [B, ...]
    raw_action: Nest  # [B, ...]
    behaviour_log_prob: Any  # float32 [B]
    advantage: Any  # float32 [B]
    value_target: Any  # float32 [B]
    old_value: Any  # float32 [B], under the acting parameters
    mask: Any  # float32 [B], 0 for rows without influence, which must be finite
    # With a recurrent core, rows are unrolls of L steps of U streams, time-major and
    # joined: B = L · U.
    reset: Any = ()  # bool [B], the first row of an episode
    core_state: Nest = ()  # [U, ...], before the first step of each unroll


class PPOLearningGraph(NamedTuple):
    """What a learner fetches, runs and saves.

    All values are those under the parameters *before* the update. `train_op` changes
    what can be trained and Adam's variables; nothing changes the normaliser's.
    """

    train_op: tf.Operation  # one step of Adam
    metrics: dict[str, tf.Tensor]  # float32 [] each
    parameters: list[tf.Variable]  # in the order of the acting graph
    normaliser: list[NormaliserVariables]  # of which parameters has all variables
    variables: list[tf.Variable]  # all that a checkpoint needs


class PPOModel(PolicyModel):
    """The acting and learning graphs of PPO, for any actions with a distribution.

    `network(spec, observation, num_parameters)` returns the parameters of the policy
    `[B, num_parameters]` and values `[B]`, and makes its variables with
    `tf.get_variable`. Schulman et al. 2017, "Proximal policy optimization algorithms".
    """

    def __init__(
        self,
        network: Network = policy_value_network,
        distribution: Callable[[Nest], DistributionFactory] = action_distribution,
        normalise_observations: bool = False,
        entropy_cost: float = 0.0,
        value_cost: float = 0.5,
        value_clip: float | None = None,
        max_gradient_norm: float = 0.5,
        adam_epsilon: float = 1e-5,
        core: RecurrentCore | None = None,
    ):
        """What the networks are and how the terms of the loss are weighed.

        Args:
          network: see above; a torso shared by policy and values is its own option.
          distribution: makes that of an action spec; squashing is an option of it.
          normalise_observations: floating-point leaves, by statistics that are
            parameters, so that all tasks act with those of the learner.
          entropy_cost, value_cost: at least 0.
          value_clip: how far values may move without a larger loss, in units of value.
          max_gradient_norm: over all variables together.
          adam_epsilon: above 0.
          core: a memory of the policy; its network then takes the place of `network`.

        Raises ValueError for a number out of its range.
        """
        above = {
            "value_clip": value_clip,
            "max_gradient_norm": max_gradient_norm,
            "adam_epsilon": adam_epsilon,
        }
        for name, number in above.items():
            if number is not None and not number > 0:
                raise ValueError(f"{name} must be above 0, got {number}")
        for name, cost in {
            "entropy_cost": entropy_cost,
            "value_cost": value_cost,
        }.items():
            if not cost >= 0:
                raise ValueError(f"{name} must be at least 0, got {cost}")
        super().__init__(network, distribution, core, normalise_observations)
        self._entropy_cost = entropy_cost
        self._value_cost = value_cost
        self._value_clip = value_clip
        self._max_gradient_norm = max_gradient_norm
        self._adam_epsilon = adam_epsilon

    def batch_spec(self, spec: EnvironmentSpec) -> PPOBatch:
        """Dtypes and trailing shapes of a batch.

        Raises ConfigError, naming the leaf, for an action without a distribution.
        """
        scalar = ArraySpec((), "float32")
        raw = self.distribution(spec.action).raw_spec
        return PPOBatch(
            observation=spec.observation,
            raw_action=raw,
            behaviour_log_prob=scalar,
            advantage=scalar,
            value_target=scalar,
            old_value=scalar,
            mask=scalar,
            reset=ArraySpec((), "bool") if self.core else (),
            core_state=self.core_spec,
        )

    def build_learning(
        self,
        spec: EnvironmentSpec,
        batch: PPOBatch,
        learning_rate: tf.Tensor,
        clip: tf.Tensor,
    ) -> PPOLearningGraph:
        """The training step of a batch, in the current graph.

            loss = mean(surrogate + value_cost · value loss − entropy_cost · entropy)

        over the rows of the mask. `learning_rate` and `clip` (of the ratio) are
        float32 `[]`.
        """
        length = self.core.unroll_length if self.core else 1
        steps = Steps(batch.observation, batch.reset, batch.core_state, length)
        outputs = self._outputs(spec, steps)
        policy = self._policy(spec, outputs.parameters)
        metrics = self._losses(policy, outputs.value, batch, clip)
        with tf.variable_scope("learning"):
            train_op, norm, slots = self._train(metrics["loss"], learning_rate)
        parameters = [v for own in outputs.normaliser for v in own[1:]]
        parameters += tf.global_variables("network/")
        return PPOLearningGraph(
            train_op,
            {**metrics, "gradient_norm": norm},
            parameters,
            outputs.normaliser,
            variables=[*parameters, *slots],
        )

    def _losses(
        self,
        policy: Distribution,
        value: tf.Tensor,
        batch: PPOBatch,
        clip: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """The loss, its terms, and what tells how far the policy has moved."""

        def mean(rows: tf.Tensor) -> tf.Tensor:
            total = tf.maximum(tf.reduce_sum(batch.mask), 1.0)
            return tf.reduce_sum(rows * batch.mask) / total

        surrogate, extra = clipped_surrogate(
            policy.log_prob(batch.raw_action),
            batch.behaviour_log_prob,
            batch.advantage,
            clip,
        )
        terms = {
            "policy_loss": mean(surrogate),
            "value_loss": mean(
                clipped_value_loss(
                    value, batch.old_value, batch.value_target, self._value_clip
                )
            ),
            "entropy": mean(policy.entropy()),
        }
        loss = (
            terms["policy_loss"]
            + self._value_cost * terms["value_loss"]
            - self._entropy_cost * terms["entropy"]
        )
        return {
            "loss": loss,
            **terms,
            "approximate_kl": mean(extra.approximate_kl),
            "clipped_share": mean(extra.clipped),
        }

    def _train(
        self, loss: tf.Tensor, learning_rate: tf.Tensor
    ) -> tuple[tf.Operation, tf.Tensor, list[tf.Variable]]:
        """The update, the norm of the gradient before clipping, Adam's variables."""
        variables = tf.trainable_variables("network/")
        gradients, norm = tf.clip_by_global_norm(
            tf.gradients(loss, variables), self._max_gradient_norm
        )
        adam = tf.train.AdamOptimizer(learning_rate, epsilon=self._adam_epsilon)
        train_op = adam.apply_gradients(zip(gradients, variables, strict=True))
        return train_op, norm, adam.variables()
