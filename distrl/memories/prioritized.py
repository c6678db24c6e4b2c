"""Replay in which transitions are drawn by their priority."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distrl.core.specs import EnvironmentSpec
from distrl.memories.replay_memory import ReplayMemory
from distrl.memories.state_check import State, saved_array
from distrl.memories.sum_tree import SumTree, level_sizes

SMALLEST = np.finfo(np.float64).tiny  # so that no live transition is out of reach


class PrioritizedMemory(ReplayMemory):
    """Proportional prioritization (Schaul et al. 2015, https://arxiv.org/abs/1511.05952).

        P(i) = p_i^α / Σ_j p_j^α        weight_i = (size · P(i))^−β / max over the batch

    α is `priority_exponent`, β `importance_sampling_exponent` (it may be set anew at
    any time). Each batch is stratified: its row b is drawn from the b-th of
    `batch_size` equal parts of the total. A row that is inserted without a priority
    (NaN) gets the largest priority seen so far, 1 at first.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        capacity: int,
        seed: np.random.SeedSequence | int,
        priority_exponent: float = 0.6,
        importance_sampling_exponent: float = 0.4,
        frame_slack: int | None = None,
    ):
        super().__init__(spec, capacity, seed, frame_slack)
        if not 0 <= priority_exponent < np.inf:
            raise ValueError(f"priority_exponent must be >= 0, got {priority_exponent}")
        if not 0 <= importance_sampling_exponent < np.inf:
            raise ValueError(
                "importance_sampling_exponent must be >= 0, got "
                f"{importance_sampling_exponent}"
            )
        self.importance_sampling_exponent = importance_sampling_exponent
        self._priority_exponent = priority_exponent
        self._tree = SumTree(capacity)
        self._largest: float | None = None  # priority seen so far

    @staticmethod
    def predicted_bytes(spec: EnvironmentSpec, capacity: int) -> int:
        """The bytes that a full memory takes; allocates nothing."""
        stored = ReplayMemory.predicted_bytes(spec, capacity)
        return stored + 8 * sum(level_sizes(capacity))

    @property
    def num_bytes(self) -> int:
        return super().num_bytes + self._tree.num_bytes

    def _draw(self, num_batches: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        shape = (num_batches, batch_size)
        strata = np.arange(batch_size) + self._random.random(shape)
        slots = self._tree.find((strata * (self._tree.total / batch_size)).ravel())
        # size and total cancel against the largest weight, that of the smallest leaf.
        leaf = self._tree.get(slots).reshape(shape)
        smallest = leaf.min(axis=1, keepdims=True)
        weights = (smallest / leaf) ** self.importance_sampling_exponent
        return self._ids(slots), weights.astype(np.float32).ravel()

    def _ids(self, slots: np.ndarray) -> np.ndarray:
        """The live ids that lie at these slots."""
        tail = self._storage.tail
        return tail + (slots - tail) % self.capacity

    def _evicted(self, first: int, end: int) -> None:
        # Slots that new rows have taken over are among these: set anew right after.
        if first < end:
            ids = np.arange(max(first, end - self.capacity), end)
            self._tree.set(self._storage.slots(ids), np.zeros(len(ids)))

    def _admitted(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        unknown = np.isnan(priorities)
        if not unknown.all():
            self._largest = max(self._largest or 0.0, float(np.nanmax(priorities)))
        if unknown.any():
            largest = 1.0 if self._largest is None else self._largest
            priorities = np.where(unknown, largest, priorities)
        self._set(ids, priorities)

    def _reprioritized(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        if ids.size:
            self._largest = max(self._largest or 0.0, float(priorities.max()))
            self._set(ids, priorities)

    def _set(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        leaf = priorities.astype(np.float64) ** self._priority_exponent
        self._tree.set(self._storage.slots(ids), np.maximum(leaf, SMALLEST))

    def state(self) -> dict[str, np.ndarray]:
        used = np.arange(min(self.inserted, self.capacity))
        largest = 0.0 if self._largest is None else self._largest
        return {
            **super().state(),
            "leaves": self._tree.get(used),
            "largest": np.array(largest),
            "priority_exponent": np.array(float(self._priority_exponent)),
        }

    def _prepare_restore(self, state: State) -> Callable[[], None]:
        rows = super()._prepare_restore(state)
        exponent = float(saved_array(state, "priority_exponent", np.float64, ()))
        if exponent != self._priority_exponent:
            raise ValueError(
                f"priority_exponent is {self._priority_exponent}, the state has "
                f"{exponent}"
            )
        largest = float(saved_array(state, "largest", np.float64, ()))
        if not 0 <= largest < np.inf:
            raise ValueError(f"'largest' of the state: impossible {largest}")
        leaf = self._saved_leaves(state)

        def take_over() -> None:
            rows()
            self._largest = largest if largest > 0 else None
            self._tree.set(np.arange(self.capacity), leaf)

        return take_over

    def _saved_leaves(self, state: State) -> np.ndarray:
        """What the tree holds, `[capacity]`, more than 0 exactly for live rows.

        Raises ValueError.
        """
        tail, head = state["range"][:2].tolist()  # checked with the rows
        used = min(head, self.capacity)
        leaf = np.zeros(self.capacity)
        leaf[:used] = saved_array(state, "leaves", np.float64, (used,))
        live = np.zeros(self.capacity, bool)
        live[np.arange(tail, head) % self.capacity] = True
        good = np.where(live, (leaf > 0) & (leaf < np.inf), leaf == 0)
        if not good.all():
            raise ValueError(f"'leaves' of the state: impossible {leaf[~good][0]}")
        return leaf
