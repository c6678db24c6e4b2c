"""Actions that are not always legal: masks in observations, as PettingZoo has them."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.specs import EnvironmentSpec, Nest, describe
from distrl.networks.discrete import discrete_action

ACTION_MASK = "action_mask"
#: The value or logit of an action that is not legal, or does not exist: below any
#: other, and finite, for 0 · −∞ is not 0.
ILLEGAL = -1e30


class Masked(NamedTuple):
    """An observation and the mask that was in it."""

    spec: EnvironmentSpec  # without the mask
    observation: Nest
    legal: tf.Tensor | None  # bool [B, A]; None: everything always is


def has_mask(spec: EnvironmentSpec) -> bool:
    """Whether observations say which actions are legal."""
    return isinstance(spec.observation, dict) and ACTION_MASK in spec.observation


def split_mask(spec: EnvironmentSpec, observation: Nest) -> Masked:
    """Takes the mask out of observations `[B, ...]`.

    It is the leaf "action_mask", `[A]`, of a dict, and what is not zero is legal. Where
    nothing is (behind the end of an episode), everything counts as legal. What is left
    of a dict with one other leaf is that leaf. Raises ConfigError, naming the specs,
    for a mask that does not fit the action.
    """
    if not has_mask(spec):
        return Masked(spec, observation, None)
    num_actions = discrete_action(spec).num_values
    if getattr(spec.observation[ACTION_MASK], "shape", None) != (num_actions,):
        raise ConfigError(
            f"an action_mask needs one number for each of the {num_actions} actions, "
            f"got {describe(spec.observation)}"
        )
    mask = tf.not_equal(observation[ACTION_MASK], 0)
    nothing = tf.logical_not(tf.reduce_any(mask, axis=1, keepdims=True))
    rest = EnvironmentSpec(_without(spec.observation), spec.action)
    return Masked(rest, _without(observation), tf.logical_or(mask, nothing))


def _without(observation: Nest) -> Nest:
    rest = {key: leaf for key, leaf in observation.items() if key != ACTION_MASK}
    return next(iter(rest.values())) if len(rest) == 1 else rest


def only_legal(values: tf.Tensor, legal: tf.Tensor | None) -> tf.Tensor:
    """Values or logits `[B, A]`, ILLEGAL where an action is not legal."""
    if legal is None:
        return values
    return tf.where(legal, values, tf.fill(tf.shape(values), ILLEGAL))
