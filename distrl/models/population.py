"""Many policies of `ESModel` side by side, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distrl.core.nests import flatten_as
from distrl.core.specs import ArraySpec, EnvironmentSpec, Nest, leaves
from distrl.models.es import ESModel, is_real
from distrl.networks.action_elements import shaped_bounds
from distrl.networks.discrete import smallest_value
from distrl.networks.normaliser import EPSILON, MAX_ABS_NORMAL
from distrl.networks.torsos import MAX_ONE_HOT


class Population:
    """N policies that differ in the weights, one row of an observation each.

        population = Population(model, spec, shapes)
        population.load(statistics, vectors)
        actions = population.act(observation)

    What each does is what `ESModel.build_greedy` does, up to rounding. In NumPy: a
    step of 16 to 64 MLPs takes 10 to 60 µs, by a graph of batched products 60 to 370.
    """

    def __init__(
        self, model: ESModel, spec: EnvironmentSpec, shapes: Sequence[tuple[int, ...]]
    ):
        """`shapes` of the network's parameters: kernel and bias of each layer.

        Raises ConfigError for actions that the model cannot choose.
        """
        model.check(spec)
        self._spec, self._shapes = spec, list(shapes)
        self._leaves: list[ArraySpec] = leaves(spec.observation)
        floating = [leaf for _, leaf in model.normalised_leaves(spec)]
        self._normalised = [leaf in floating for leaf in self._leaves]
        self._statistics: list[tuple[np.ndarray, np.ndarray]] = []
        self._layers: list[tuple[np.ndarray, np.ndarray]] = []
        if is_real(spec.action):
            self._low, self._high = (
                bound.astype(spec.action.dtype) for bound in shaped_bounds(spec.action)
            )

    def load(self, statistics: Sequence[np.ndarray], vectors: np.ndarray) -> None:
        """Statistics for all: mean, variance, count of each normalised leaf. Weights:
        float32 `[N, P]`, in the order of `shapes`."""
        self._statistics = [
            (mean, 1 / np.sqrt(variance + EPSILON))
            for mean, variance in zip(statistics[::3], statistics[1::3], strict=True)
        ]
        arrays, at = [], 0
        for shape in self._shapes:
            size = int(np.prod(shape))
            part = np.ascontiguousarray(vectors[:, at : at + size])
            arrays.append(part.reshape(len(vectors), *shape))
            at += size
        if at != vectors.shape[1]:
            raise ValueError(f"expected {at} weights a policy, got {vectors.shape[1]}")
        self._layers = list(zip(arrays[::2], arrays[1::2], strict=True))

    def act(self, observation: Nest) -> Nest:
        """What the environment takes, `[N, ...]`, of observations `[N, ...]`."""
        x = self._inputs(observation)
        for kernel, bias in self._layers[:-1]:
            x = np.tanh(_product(x, kernel) + bias)
        kernel, bias = self._layers[-1]
        return self._action(_product(x, kernel) + bias)

    def _inputs(self, observation: Nest) -> np.ndarray:
        """float32 `[N, D]`, as `flat_observation` makes it."""
        statistics = iter(self._statistics)
        parts = []
        arrays = flatten_as(self._spec.observation, observation)
        for leaf, scaled, x in zip(self._leaves, self._normalised, arrays, strict=True):
            if scaled:
                mean, scale = next(statistics)
                x = np.clip((x - mean) * scale, -MAX_ABS_NORMAL, MAX_ABS_NORMAL)
            parts.append(_flat(leaf, x))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _action(self, outputs: np.ndarray) -> np.ndarray:
        action: ArraySpec = self._spec.action
        if not is_real(action):
            best = np.argmax(outputs, axis=1) + smallest_value(action)
            return best.astype(action.dtype)
        middle, half = (self._high + self._low) / 2, (self._high - self._low) / 2
        elements = np.tanh(outputs).reshape(-1, *action.shape)
        bounded = (middle + half * elements).astype(action.dtype)
        return np.clip(bounded, self._low, self._high)


def _product(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Row i times matrix i: `[N, D]`, `[N, D, U]` → `[N, U]`."""
    return np.matmul(x[:, None, :], kernel)[:, 0, :]


def _flat(leaf: ArraySpec, x: np.ndarray) -> np.ndarray:
    try:
        number = leaf.num_values
    except ValueError:
        number = MAX_ONE_HOT + 1
    if number <= MAX_ONE_HOT:
        symbols = np.arange(number) + smallest_value(leaf)
        return (np.asarray(x)[:, None] == symbols).astype(np.float32)
    return np.asarray(x, np.float32).reshape(len(x), -1)
