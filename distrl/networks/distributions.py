"""Distributions over the actions of an environment, from the outputs of a network."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.core.errors import ConfigError
from distrl.core.nests import flatten_as, unflatten_as
from distrl.core.specs import ArraySpec, Nest, describe, named_leaves
from distrl.networks.categorical import CategoricalFactory
from distrl.networks.gaussian import GaussianFactory
from distrl.networks.placeholders import tensor_name
from distrl.networks.squashed_gaussian import SquashedGaussianFactory


class LeafDistribution(Protocol):
    """B independent distributions of one leaf `[*shape]` of an action.

    Numbers are float32 `[B]`; an action is the raw one, as trajectories keep it.
    """

    def log_prob(self, action: tf.Tensor) -> tf.Tensor: ...
    def entropy(self) -> tf.Tensor: ...
    def kl(self, other: Any) -> tf.Tensor: ...
    def sample(self, seed: tf.Tensor) -> tf.Tensor: ...
    def mode(self) -> tf.Tensor: ...


class LeafFactory(Protocol):
    """Distributions of one leaf, and what becomes of its raw actions."""

    raw_spec: ArraySpec
    num_parameters: int

    def __call__(self, parameters: tf.Tensor) -> LeafDistribution: ...
    def to_environment(self, raw: np.ndarray) -> np.ndarray: ...
    def to_environment_graph(self, raw: tf.Tensor) -> tf.Tensor: ...


class Distribution:
    """B distributions of whole actions, the leaves independent of each other.

    So log-probabilities, entropies and divergences are sums over the leaves, float32
    `[B]`. Actions are nests of raw actions, `[B, ...]`. No operation is control flow.
    """

    def __init__(self, spec: Nest, parts: Sequence[LeafDistribution]):
        """`spec` gives the structure, `parts` are the leaves, in its order."""
        self._spec = spec
        self.parts = list(parts)

    def log_prob(self, action: Nest) -> tf.Tensor:
        """log p(action). Raises ValueError for a nest or leaf of another shape."""
        actions = flatten_as(self._spec, action)
        pairs = zip(self.parts, actions, strict=True)
        return _sum([part.log_prob(each) for part, each in pairs])

    def entropy(self) -> tf.Tensor:
        """The differential entropy where actions are real, in nats."""
        return _sum([part.entropy() for part in self.parts])

    def kl(self, other: Distribution) -> tf.Tensor:
        """KL(self ‖ other). Raises ValueError unless both are of the same kinds."""
        kinds = [[type(part) for part in each.parts] for each in (self, other)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"KL divergence of {kinds[0]} from {kinds[1]}")
        pairs = zip(self.parts, other.parts, strict=True)
        return _sum([part.kl(its) for part, its in pairs])

    def sample(self, seed: tf.Tensor) -> Nest:
        """Random actions, the same ones for the same parameters and seed.

        `seed` is int32 `[2]`, such as a task's seed and the number of its step; feed
        each pair once. The randomness has no state.
        """
        if len(self.parts) == 1:
            return unflatten_as(self._spec, [self.parts[0].sample(seed)])
        return unflatten_as(
            self._spec,
            [
                part.sample(tf.random.experimental.stateless_fold_in(seed, index))
                for index, part in enumerate(self.parts)
            ],
        )

    def mode(self) -> Nest:
        """The greedy actions."""
        return unflatten_as(self._spec, [part.mode() for part in self.parts])


class DistributionFactory:
    """Distributions from the outputs of a network, and what becomes of the actions.

        distribution = action_distribution(spec.action)
        policy = distribution(head(features, distribution.num_parameters))
        raw = policy.sample(seed_ph)                         # in the graph
        environment.step(distribution.to_environment(raw))   # NumPy
        ... policy.log_prob(raw) ...                         # when training on it

    A Gaussian's `log_std` is a variable, made by the call in the current scope: call it
    in the scope of the network.
    """

    def __init__(self, spec: Nest, factories: Sequence[tuple[str, LeafFactory]]):
        """`factories` are (path, factory) of the leaves of `spec`, in its order."""
        self._spec = spec
        self._factories = list(factories)
        raw = [factory.raw_spec for _, factory in factories]
        self.raw_spec: Nest = unflatten_as(spec, raw)  # of what trajectories keep
        self.num_parameters = sum(f.num_parameters for _, f in factories)

    def __call__(self, parameters: tf.Tensor) -> Distribution:
        """The distributions with parameters `[B, P]`, leaf by leaf, used as float32.

        Raises ValueError unless P is `num_parameters`, statically.
        """
        if parameters.shape.rank != 2 or parameters.shape[1] != self.num_parameters:
            raise ValueError(
                f"expected parameters [B, {self.num_parameters}], "
                f"got {parameters.shape}"
            )
        parameters = tf.cast(parameters, tf.float32)
        sizes = [factory.num_parameters for _, factory in self._factories]
        split = tf.split(parameters, sizes, axis=1) if len(sizes) > 1 else [parameters]
        parts = []
        for (path, factory), own in zip(self._factories, split, strict=True):
            with self._scope(path):
                parts.append(factory(own))
        return Distribution(self._spec, parts)

    def to_environment(self, raw: Nest) -> Nest:
        """What the environment takes of raw actions `[N, ...]`, NumPy in and out.

        In the environment's dtypes, within its bounds.
        """
        return self._map(lambda factory, leaf: factory.to_environment(leaf), raw)

    def to_environment_graph(self, raw: Nest) -> Nest:
        """The same with tensors, such as for an exported policy."""
        return self._map(lambda factory, leaf: factory.to_environment_graph(leaf), raw)

    def _map(self, function: Callable[[LeafFactory, Any], Any], raw: Nest) -> Nest:
        pairs = zip(self._factories, flatten_as(self._spec, raw), strict=True)
        results = [function(factory, leaf) for (_, factory), leaf in pairs]
        return unflatten_as(self._spec, results)

    def _scope(self, path: str) -> contextlib.AbstractContextManager[Any]:
        """Variables of several leaves are told apart by their paths."""
        if len(self._factories) == 1:
            return contextlib.nullcontext()
        return tf.variable_scope(tensor_name("action", path))


def action_distribution(
    action_spec: Nest,
    squash: bool = False,
    state_dependent_std: bool = False,
    initial_log_std: float = 0.0,
) -> DistributionFactory:
    """The kind of distribution that fits an action, leaf by leaf.

    Bounded integers are categorical, an array of them an independent one an element.
    Real numbers are normal with a diagonal covariance: clipped to their bounds on the
    way to the environment, or, with `squash`, squashed into them by tanh. The log of
    their standard deviation starts at `initial_log_std` and is a variable, or, with
    `state_dependent_std`, an output of the network.

    Raises ConfigError, naming the leaf, for integers without bounds, for real numbers
    without finite bounds that are to be squashed, and for other dtypes.
    """

    def factory(leaf: ArraySpec) -> LeafFactory:
        dtype = np.dtype(leaf.dtype)
        if np.issubdtype(dtype, np.integer):
            return CategoricalFactory(leaf)
        if not np.issubdtype(dtype, np.floating):
            raise ConfigError(f"no distribution of {describe(leaf)}")
        kind = SquashedGaussianFactory if squash else GaussianFactory
        return kind(leaf, state_dependent_std, initial_log_std)

    factories = []
    for path, leaf in named_leaves(action_spec):
        try:
            factories.append((path, factory(leaf)))
        except ConfigError as error:
            raise ConfigError(f"action, leaf {path!r}: {error}") from None
    return DistributionFactory(action_spec, factories)


def _sum(terms: list[tf.Tensor]) -> tf.Tensor:
    return terms[0] if len(terms) == 1 else tf.add_n(terms)
