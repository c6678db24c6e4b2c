"""IMPALA as graphs: an actor-critic that learns from what older policies did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from distrl.core.specs import EnvironmentSpec, Nest
from distrl.core.trajectories import Trajectories, trajectories_spec
from distrl.losses.reward_clipping import check_reward_clipping, clipped_rewards
from distrl.losses.vtrace import VTrace, vtrace_from_importance_weights
from distrl.models.gradient_optimizers import GradientOptimizer, rmsprop
from distrl.models.impala_batch import ImpalaBatch, joined, step_masks
from distrl.models.policy_acting import Network, PolicyModel, Steps
from distrl.models.popart import PopArt
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.distributions import (
    Distribution,
    DistributionFactory,
    action_distribution,
)
from distrl.networks.policy_value_network import policy_value_network

LOSS_TERMS = ("loss", "policy_loss", "baseline_loss")
# exp of more than this is as good as infinite; for the metrics alone.
_MAX_ABS_LOG_RHO = 20.0


class ImpalaTower(NamedTuple):
    """Sums over the rows of one batch that count, so that those of several add up."""

    gradients: list[tf.Tensor | None]  # of the loss, one a trainable variable
    num_rows: tf.Tensor  # float32 []
    sums: dict[str, tf.Tensor]  # float32 [] each: terms of the loss, and metrics
    target_sums: tuple[tf.Tensor, tf.Tensor]  # float64 [], of vs and of vs²


class ImpalaLearningGraph(NamedTuple):
    """What a learner fetches, runs and saves.

    All values are those under the parameters *before* the update; `train_op` alone
    changes anything.
    """

    train_op: tf.Operation
    metrics: dict[str, tf.Tensor]  # float32 [] each
    parameters: list[tf.Variable]  # in the order of the acting graph
    variables: list[tf.Variable]  # all that a checkpoint needs


class ImpalaModel(PolicyModel):
    """The acting and learning graphs of IMPALA, for any actions with a distribution.

        sums over the steps that count, with V-trace's vs and advantages:
        policy_loss   = −Σ log π(a_t | s_t) · advantage_t
        baseline_loss = Σ (vs_t − V_t)² / 2
        loss = policy_loss + baseline_cost · baseline_loss − entropy_cost · Σ entropy

    Espeholt et al. 2018, "IMPALA: scalable distributed deep-RL with importance weighted
    actor-learner architectures". A batch is one tower, or its streams are split:

        towers = [model.build_tower(spec, part) for part in parts]  # any devices
        graph = model.build_apply(towers, learning_rate)

    which is the same update, up to rounding, as that of one tower for all.
    """

    def __init__(
        self,
        network: Network = policy_value_network,
        distribution: Callable[[Nest], DistributionFactory] = action_distribution,
        entropy_cost: float = 0.01,
        baseline_cost: float = 0.5,
        discount: float = 0.99,
        lambda_: float = 1.0,
        rho_clip: float | None = 1.0,
        pg_rho_clip: float | None = 1.0,
        reward_clipping: str | None = None,
        core: RecurrentCore | None = None,
        gradient_optimizer: GradientOptimizer = rmsprop,
        max_gradient_norm: float = 40.0,
        loss_reduction: str = "sum",
        popart: PopArt | None = None,
    ):
        """What the networks are and how the terms of the loss are weighed.

        Args:
          network, distribution: as for PPOModel.
          entropy_cost, baseline_cost: at least 0.
          discount, lambda_: in [0, 1].
          rho_clip, pg_rho_clip: above 0, None for none; see `losses.vtrace`.
          reward_clipping: None, "abs_one" or "soft_asymmetric"; in the loss alone.
          core: a memory of the policy; its network then takes the place of `network`,
            and is unrolled over all of a trajectory, whatever its unroll_length.
          gradient_optimizer: makes that of a learning rate: `rmsprop` or `adam`.
          max_gradient_norm: over all variables together.
          loss_reduction: "sum", or "mean" over the steps that count.
          popart: None, or how values are normalised; advantages and errors of the
            baseline are then divided by its standard deviation.

        Raises ValueError for a number out of its range, and an unknown mode.
        """
        super().__init__(network, distribution, core)
        costs = {"entropy_cost": entropy_cost, "baseline_cost": baseline_cost}
        clips = {"rho_clip": rho_clip, "pg_rho_clip": pg_rho_clip}
        norm = {"max_gradient_norm": max_gradient_norm}
        _check_numbers(costs, {**clips, **norm})
        for name, share in {"discount": discount, "lambda_": lambda_}.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {share}")
        if loss_reduction not in ("sum", "mean"):
            raise ValueError(f"loss_reduction: sum or mean, got {loss_reduction!r}")
        check_reward_clipping(reward_clipping)
        self.discount = discount
        self._costs = costs
        self._rho_clip, self._pg_rho_clip = rho_clip, pg_rho_clip
        self._lambda = lambda_
        self._reward_clipping = reward_clipping
        self._gradient_optimizer = gradient_optimizer
        self._max_gradient_norm = max_gradient_norm
        self._loss_reduction = loss_reduction
        self._popart = popart

    def trajectories_spec(self, spec: EnvironmentSpec, num_steps: int) -> Trajectories:
        """Dtypes and trailing shapes of unrolls of `num_steps`.

        Raises ConfigError, naming the leaf, for an action without a distribution.
        """
        raw = self.distribution(spec.action).raw_spec
        size = self.behaviour_size(spec)
        return trajectories_spec(spec, raw, size, num_steps, self.core_spec)

    def build_learning(
        self, spec: EnvironmentSpec, batch: ImpalaBatch, learning_rate: tf.Tensor
    ) -> ImpalaLearningGraph:
        """The training step of a batch, in the current graph; `learning_rate` is
        float32 `[]`. Raises ValueError where T is not static."""
        return self.build_apply([self.build_tower(spec, batch)], learning_rate)

    def build_tower(self, spec: EnvironmentSpec, batch: ImpalaBatch) -> ImpalaTower:
        """Loss and gradients of a batch; towers of one graph share all variables.

        Raises ValueError where T is not static.
        """
        mask = step_masks(batch)
        outputs = self._outputs(spec, self._steps(batch, mask))
        value = tf.reshape(outputs.value, [mask.shape[0] + 1, -1])
        num_actions = tf.size(mask)  # the last row has no action
        policy = self._policy(spec, outputs.parameters[:num_actions])
        log_prob, behaviour_log_prob, entropy = (
            tf.reshape(each, tf.shape(mask))
            for each in self._log_probs(spec, policy, batch)
        )
        log_rho = tf.stop_gradient(log_prob - behaviour_log_prob)
        vtrace = self._targets(batch, mask, log_rho, value)
        per_std = self._per_std()
        rows = {
            "policy_loss": -log_prob * vtrace.pg_advantages * per_std,
            "baseline_loss": 0.5 * tf.square((vtrace.vs - value[:-1]) * per_std),
            "entropy": entropy,
            **self._distances(log_rho),
        }
        sums = {name: _masked_sum(mask, row) for name, row in rows.items()}
        sums = {"loss": self._loss(sums), **sums}
        gradients = tf.gradients(sums["loss"], tf.trainable_variables("network/"))
        vs = tf.cast(vtrace.vs, tf.float64)
        return ImpalaTower(
            [g if g is None else tf.convert_to_tensor(g) for g in gradients],
            tf.reduce_sum(tf.cast(mask, tf.float32)),
            sums,
            (_masked_sum(mask, vs), _masked_sum(mask, tf.square(vs))),
        )

    def build_apply(
        self, towers: Sequence[ImpalaTower], learning_rate: tf.Tensor
    ) -> ImpalaLearningGraph:
        """One update by all towers together; `learning_rate` is float32 `[]`.

        Build all towers, in the same graph, before. Terms of the loss are reduced as
        `loss_reduction` says, all other metrics are means over the steps that count.
        """
        num_rows = tf.add_n([tower.num_rows for tower in towers])
        share = 1.0 / tf.maximum(num_rows, 1.0)
        loss_share = share if self._loss_reduction == "mean" else 1.0
        metrics = {
            name: tf.add_n([tower.sums[name] for tower in towers])
            * (loss_share if name in LOSS_TERMS else share)
            for name in towers[0].sums
        }
        gradients = zip(*[tower.gradients for tower in towers], strict=True)
        total = [_added(parts, loss_share) for parts in gradients]
        parameters = tf.global_variables("network/")
        with tf.variable_scope("learning"):
            train_op, norm, slots = self._train(total, learning_rate)
        if self._popart is not None:
            targets = zip(*[tower.target_sums for tower in towers], strict=True)
            sums = [tf.add_n(parts) for parts in targets]
            rows = tf.cast(num_rows, tf.float64)
            with tf.control_dependencies([train_op]):
                train_op = self._popart.build_update(rows, *sums)
        metrics = {**metrics, "gradient_norm": norm}
        return ImpalaLearningGraph(train_op, metrics, parameters, [*parameters, *slots])

    def _steps(self, batch: ImpalaBatch, mask: tf.Tensor) -> Steps:
        """All T + 1 rows; the row behind a masked one is the first of an episode."""
        none = tf.zeros_like(mask[:1])
        reset = tf.reshape(tf.concat([none, tf.logical_not(mask)], axis=0), [-1])
        num_steps = mask.shape[0] + 1
        return Steps(joined(batch.observation), reset, batch.core_state, num_steps)

    def _log_probs(
        self, spec: EnvironmentSpec, policy: Distribution, batch: ImpalaBatch
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Of the actions under both policies, and the entropies; [T · B] each."""
        action = joined(batch.raw_action)
        behaviour = self.behaviour_policy(spec, joined(batch.behaviour))
        log_prob = behaviour.log_prob(action)
        return policy.log_prob(action), log_prob, policy.entropy()

    def _targets(
        self,
        batch: ImpalaBatch,
        mask: tf.Tensor,
        log_rho: tf.Tensor,
        value: tf.Tensor,
    ) -> VTrace:
        goes_on = tf.cast(tf.logical_not(batch.terminated), tf.float32)
        return vtrace_from_importance_weights(
            log_rho,
            self.discount * goes_on,
            clipped_rewards(batch.reward, self._reward_clipping),
            value[:-1],
            value[-1],
            self._rho_clip,
            self._pg_rho_clip,
            self._lambda,
            mask,
        )

    def _distances(self, log_rho: tf.Tensor) -> dict[str, tf.Tensor]:
        """How far the policy is from the one that acted, [T, B] each."""
        limit, clip = _MAX_ABS_LOG_RHO, self._rho_clip
        log_rho = tf.clip_by_value(log_rho, -limit, limit)
        rho = tf.exp(log_rho)
        clipped = tf.zeros_like(rho) if clip is None else tf.cast(rho > clip, rho.dtype)
        return {
            "mean_rho": rho,
            "clipped_share": clipped,
            # Of the mean KL(behaviour ‖ π) without bias, less noisy than −log ρ.
            "approximate_kl": tf.math.expm1(log_rho) - log_rho,
        }

    def _loss(self, sums: dict[str, tf.Tensor]) -> tf.Tensor:
        return (
            sums["policy_loss"]
            + self._costs["baseline_cost"] * sums["baseline_loss"]
            - self._costs["entropy_cost"] * sums["entropy"]
        )

    def _train(
        self, gradients: list[tf.Tensor | None], learning_rate: tf.Tensor
    ) -> tuple[tf.Operation, tf.Tensor, list[tf.Variable]]:
        """The update, the norm before clipping, the optimizer's variables."""
        clipped, norm = tf.clip_by_global_norm(gradients, self._max_gradient_norm)
        optimizer = self._gradient_optimizer(learning_rate)
        variables = tf.trainable_variables("network/")
        pairs = zip(clipped, variables, strict=True)
        return optimizer.apply_gradients(pairs), norm, optimizer.variables()

    def _in_units_of_reward(self, value: tf.Tensor) -> tf.Tensor:
        return value if self._popart is None else self._popart.unnormalised(value)

    def _per_std(self) -> tf.Tensor | float:
        """1 / std of the values, 1 without PopArt."""
        if self._popart is None:
            return 1.0
        return tf.cast(1.0 / self._popart.std(*self._popart.statistics()), tf.float32)


def _masked_sum(mask: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.where_v2(mask, rows, tf.zeros_like(rows)))


def _added(parts: Sequence[tf.Tensor | None], share: Any) -> tf.Tensor | None:
    return None if parts[0] is None else tf.add_n(parts) * share


def _check_numbers(costs: dict[str, float], above: dict[str, float | None]) -> None:
    for name, cost in costs.items():
        if not cost >= 0:
            raise ValueError(f"{name} must be at least 0, got {cost}")
    for name, number in above.items():
        if number is not None and not number > 0:
            raise ValueError(f"{name} must be above 0, got {number}")
