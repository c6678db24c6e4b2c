"""What the replay memories share."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from distrl.core.records import Experience, ReplayBatch
from distrl.core.specs import EnvironmentSpec
from distrl.memories.replay_storage import ReplayStorage, predicted_bytes
from distrl.memories.state_check import (
    State,
    generator_text,
    saved_count,
    saved_generator,
    saved_text,
)


class ReplayMemory:
    """Transitions in, batches out; subclasses say how rows are drawn.

        memory.insert(producer, experience)
        batches = memory.sample(num_batches=8, batch_size=256)
        stale = memory.update(batches.id, priorities)

    Not safe for threads: a memory belongs to one loop. The order in which rows lie in
    a batch has no meaning. `frame_slack` is that of ReplayStorage.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        capacity: int,
        seed: np.random.SeedSequence | int,
        frame_slack: int | None = None,
    ):
        self._storage = ReplayStorage(spec, capacity, frame_slack)
        self._random = np.random.default_rng(seed)
        self._stale_updates = 0

    @staticmethod
    def predicted_bytes(spec: EnvironmentSpec, capacity: int) -> int:
        """The bytes that a full memory takes; allocates nothing."""
        return predicted_bytes(spec, capacity)

    @property
    def size(self) -> int:
        """Live transitions."""
        return self._storage.size

    @property
    def capacity(self) -> int:
        return self._storage.capacity

    @property
    def inserted(self) -> int:
        """Rows ever stored."""
        return self._storage.head

    @property
    def orphans(self) -> int:
        """Rows ever dropped because their frames were not there."""
        return self._storage.orphans

    @property
    def stale_updates(self) -> int:
        """Rows of updates that came after their transition had been evicted."""
        return self._stale_updates

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays of a full memory."""
        return self._storage.num_bytes

    @property
    def bytes_per_transition(self) -> float:
        return self.num_bytes / self.capacity

    def insert(self, producer: Hashable, experience: Experience) -> int:
        """Stores what `producer` sent; returns the number of rows stored.

        The others were orphans. A priority must be finite and > 0, or NaN for "not
        known". Raises ValueError, and stores nothing, for anything else and for a
        record that does not fit the spec.
        """
        priorities = experience.priority
        check_priorities(priorities[~np.isnan(priorities)])
        old_tail = self._storage.tail
        stored = self._storage.insert(producer, experience)
        self._evicted(old_tail, self._storage.tail)
        self._admitted(stored.ids, priorities[stored.rows])
        return stored.num_rows

    def sample(self, num_batches: int, batch_size: int) -> ReplayBatch:
        """Copies of `num_batches` · `batch_size` rows, batch after batch.

        Rows may repeat, so a batch may be larger than the memory's size. Raises
        ValueError when the memory is empty.
        """
        if num_batches < 1 or batch_size < 1:
            raise ValueError(f"cannot sample {num_batches} batches of {batch_size}")
        if not self.size:
            raise ValueError("cannot sample: the memory is empty")
        ids, weights = self._draw(num_batches, batch_size)
        return ReplayBatch(self._storage.gather(ids), weights, ids)

    def update(self, ids: np.ndarray, priorities: np.ndarray) -> int:
        """Gives rows new priorities; returns how many were stale and ignored.

        A row is stale when it is not live: evicted meanwhile, or never stored. Of a
        repeated id the last priority counts. Raises ValueError, and changes nothing,
        for a priority that is not finite and > 0.
        """
        ids = np.asarray(ids, np.int64)
        priorities = np.asarray(priorities)
        if ids.shape != priorities.shape or ids.ndim != 1:
            raise ValueError(f"{priorities.shape} priorities for {ids.shape} ids")
        check_priorities(priorities)
        live = self._storage.live(ids)
        stale = ids.size - int(np.count_nonzero(live))
        if stale:
            ids, priorities = ids[live], priorities[live]
        self._reprioritized(ids, priorities)
        self._stale_updates += stale
        return stale

    def state(self) -> dict[str, np.ndarray]:
        """Copies of everything, as arrays without Python objects.

        A memory restored from it goes on as this one would.
        """
        return {
            "kind": np.array(type(self).__name__),
            "random": generator_text(self._random),
            "stale_updates": np.array(self._stale_updates),
            **self._storage.state(),
        }

    def restore(self, state: State) -> None:
        """Goes on from `state`, which is copied.

        Raises ValueError, and changes nothing, for the state of another kind, capacity
        or spec, and for a damaged one; the error names what does not fit.
        """
        self._prepare_restore(state)()

    def _prepare_restore(self, state: State) -> Callable[[], None]:
        """What takes `state` over once it is called; nothing changes before."""
        if saved_text(state, "kind") != type(self).__name__:
            raise ValueError(f"state of a {state['kind']}, not {type(self).__name__}")
        random = saved_generator(state, "random")
        stale_updates = saved_count(state, "stale_updates")
        storage = self._storage.prepare_restore(state)

        def take_over() -> None:
            self._random, self._stale_updates = random, stale_updates
            storage()

        return take_over

    def _draw(self, num_batches: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Live ids int64 and weights float32, both `[num_batches · batch_size]`."""
        raise NotImplementedError

    def _evicted(self, first: int, end: int) -> None:
        """The ids in `[first, end)` have gone."""

    def _admitted(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        """These ids, which count up by one, are new; NaN is an unknown priority."""

    def _reprioritized(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        """These live ids have new priorities, all > 0."""


def check_priorities(priorities: np.ndarray) -> None:
    """Raises ValueError, naming the value, unless all are finite and > 0."""
    good = (priorities > 0) & (priorities < np.inf)
    if not good.all():
        raise ValueError(
            f"priorities must be finite and > 0, got {priorities[~good][0]}"
        )
