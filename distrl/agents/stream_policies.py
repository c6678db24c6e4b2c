"""Where an actor has its actions from: a session of its own, or a batcher before it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from distrl.agents.settings import Inference
from distrl.checkpoints.parameters import unflatten_parameters
from distrl.checkpoints.policy_sampler import PolicySampler, SampledActions
from distrl.core.dynamic_batcher import DynamicBatcher
from distrl.core.specs import Nest


class Decision(NamedTuple):
    """What a policy did in N streams."""

    sampled: SampledActions
    version: np.ndarray  # int64 [N], of the parameters acted by


class StreamPolicy(Protocol):
    """Acts on the rows of some streams; the caller keeps their core states."""

    core_spec: Nest

    def act(self, observation: Nest, core_state: Nest) -> Decision:
        """Random actions for `[N, ...]`; states are those before the step."""

    def to_environment(self, raw_action: Nest) -> Nest:
        """Actions as environments take them."""

    def load(self, version: int, parameters: np.ndarray) -> None:
        """Acts under these, as they travel, where it acts by parameters of its own."""

    def close(self) -> None:
        """Frees what it holds; a thread that waits in `act` is woken by an error."""


class FlatSampler(PolicySampler):
    """A sampler that takes parameters as they travel, and knows their version."""

    version = -1

    def load_flat(self, version: int, parameters: np.ndarray) -> None:
        """uint8 bytes. Raises ValueError when they do not fit the acting graph."""
        self.load_version(
            version, unflatten_parameters(parameters, self.parameter_specs)
        )

    def load_version(self, version: int, parameters: Sequence[np.ndarray]) -> None:
        """Arrays in the order of `parameter_specs`. Raises ValueError likewise."""
        self.load(parameters)
        self.version = version


class LocalPolicy:
    """A StreamPolicy that acts in the calling thread."""

    def __init__(self, sampler: FlatSampler, seed: np.random.SeedSequence):
        """`seed` is that of the actions."""
        self._sampler, self._random = sampler, np.random.default_rng(seed)
        self.core_spec, self.to_environment = sampler.core_spec, sampler.to_environment
        self.load, self.close = sampler.load_flat, sampler.close

    def act(self, observation: Nest, core_state: Nest) -> Decision:
        pair = self._random.integers(0, 1 << 31, 2)
        sampled = self._sampler.act(observation, pair, core_state)
        version = np.full(len(sampled.value), self._sampler.version, np.int64)
        return Decision(sampled, version)


class SharedPolicy:
    """A StreamPolicy for many threads: their rows share the forward passes of one.

    New parameters come between two passes, never into one.
    """

    def __init__(self, policy: StreamPolicy, inference: Inference, name: str):
        """`policy` is called, one call at a time, in the thread called `name`."""
        self._policy, self._lock = policy, threading.Lock()
        self.core_spec, self.to_environment = policy.core_spec, policy.to_environment
        self.batcher = DynamicBatcher(
            self._act,
            inference.min_batch_size,
            inference.max_batch_size,
            inference.batch_timeout_secs,
            name=name,
        )

    def act(self, observation: Nest, core_state: Nest) -> Decision:
        """Raises BatcherClosed once it is closed or the policy has failed, with that
        error as the cause."""
        decision: Decision = self.batcher((observation, core_state))
        return decision

    def _act(self, rows: tuple[Nest, Nest]) -> Decision:
        with self._lock:
            return self._policy.act(*rows)

    def load(self, version: int, parameters: np.ndarray) -> None:
        with self._lock:
            self._policy.load(version, parameters)

    def close(self) -> None:
        try:
            self.batcher.close()
        finally:
            self._policy.close()
