"""Adam on one vector, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class FlatAdam:
    """Steps along a gradient, scaled by running moments of it.

        m = β1 m + (1 − β1) g,  v = β2 v + (1 − β2) g²
        step = α · m / (1 − β1^t) / (√(v / (1 − β2^t)) + ε)

    Kingma and Ba 2015, "Adam: a method for stochastic optimization".
    """

    def __init__(
        self,
        size: int,
        learning_rate: float,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
    ):
        self._learning_rate, self._epsilon = learning_rate, epsilon
        self._beta_1, self._beta_2 = beta_1, beta_2
        self._mean, self._square = np.zeros(size), np.zeros(size)
        self._num_steps = 0

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """What to add in order to ascend, float32 `[size]`.

        Raises ValueError for a gradient of another size.
        """
        if gradient.shape != self._mean.shape:
            raise ValueError(f"expected {self._mean.shape}, got {gradient.shape}")
        g = gradient.astype(np.float64)
        self._num_steps += 1
        self._mean += (1 - self._beta_1) * (g - self._mean)
        self._square += (1 - self._beta_2) * (g * g - self._square)
        mean = self._mean / (1 - self._beta_1**self._num_steps)
        square = self._square / (1 - self._beta_2**self._num_steps)
        step = self._learning_rate * mean / (np.sqrt(square) + self._epsilon)
        return step.astype(np.float32)

    def state(self) -> dict[str, np.ndarray]:
        """Copies of all that changes."""
        return {
            "mean": self._mean.copy(),
            "square": self._square.copy(),
            "num_steps": np.asarray(self._num_steps, np.int64),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over a `state()`. Raises ValueError for one of another size."""
        for name in ("mean", "square"):
            if state[name].shape != self._mean.shape:
                raise ValueError(
                    f"{name}: expected {self._mean.shape}, got {state[name].shape}"
                )
        self._mean, self._square = state["mean"].copy(), state["square"].copy()
        self._num_steps = int(state["num_steps"])
