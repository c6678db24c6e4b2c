"""Unrolls in, batches of exactly one size out, some of them mixed in again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from distrl.core.nests import flatten_as, unflatten_as
from distrl.core.specs import Nest, digest, leaves, validate
from distrl.core.trajectories import Trajectories
from distrl.memories.state_check import (
    State,
    generator_text,
    saved_array,
    saved_counts,
    saved_generator,
    saved_text,
)
from distrl.memories.unroll_ring import UnrollRing


class TrajectoryMemory:
    """Joins unrolls, in the order of their arrival, to batches of `batch_size`.

        memory.insert(trajectories)
        while memory.can_sample:
            send(memory.sample())
        ...
        rest = memory.finish()  # when the run ends

    A remainder is kept for the next batch. All numbers are unrolls, and at any time
    `fresh + replayed == out + pending`.

    Replay: behind each fresh unroll come ⌊p⌋ stored ones, and one more with the
    probability p − ⌊p⌋, where p is `replay_proportion`; each is drawn uniformly from
    the last `replay_capacity` fresh ones before it. Nothing is replayed while fewer
    than `batch_size` are stored. One that has been replayed `max_reuse` times (None: no
    limit) is stored no longer; so a limit close to p may keep the share of replayed
    ones below p. V-trace corrects for their age: the parameters that they were acted by
    stay with them.

    An unroll is copied once into its batch, and once more where it is stored or
    replayed. Used by one thread at a time.
    """

    def __init__(
        self,
        spec: Trajectories,
        batch_size: int,
        seed: np.random.SeedSequence | int,
        replay_capacity: int = 0,
        replay_proportion: float = 0.0,
        max_reuse: int | None = None,
    ):
        """`spec` as of `trajectories_spec`. Raises ValueError for a number that is out
        of range, for a capacity too small to replay from (below `batch_size`), and for
        a proportion above `max_reuse`."""
        _check_settings(batch_size, replay_capacity, replay_proportion, max_reuse)
        self.batch_size = batch_size
        self.fresh = 0  # inserted
        self.replayed = 0  # drawn from the stored ones
        self.out = 0  # sampled, or taken by `finish`
        self._spec = spec
        self._proportion = float(replay_proportion)
        self._random = np.random.default_rng(seed)
        capacity = replay_capacity if replay_proportion > 0 else 0
        self._ring = UnrollRing(spec, capacity, max_reuse)
        self._batches = _Batches(spec, batch_size)

    @staticmethod
    def predicted_bytes(spec: Trajectories, replay_capacity: int) -> int:
        """The bytes that so many stored unrolls take; allocates nothing."""
        return replay_capacity * sum(leaf.num_bytes for leaf in leaves(spec))

    @property
    def num_bytes(self) -> int:
        """Bytes of all unrolls that can be stored."""
        return self.predicted_bytes(self._spec, self._ring.capacity)

    @property
    def pending(self) -> int:
        """Unrolls that wait to be sampled, whole batches and the remainder."""
        return len(self._batches.ready) * self.batch_size + self._batches.filled

    @property
    def available(self) -> int:
        """Whole batches that wait to be sampled."""
        return len(self._batches.ready)

    @property
    def can_sample(self) -> bool:
        return self.available > 0

    @property
    def stored(self) -> int:
        """Unrolls that can be replayed."""
        return self._ring.size

    def insert(self, trajectories: Trajectories) -> None:
        """Takes in copies of unrolls `[U, ...]`, U ≥ 0, in their order.

        Raises ValueError, and takes in nothing, when they do not fit the spec.
        """
        arrays = self._checked(trajectories)
        number = len(arrays[0])
        self.fresh += number
        if not self._proportion:
            self._batches.add(arrays, 0, number)
            return
        for row in range(number):
            self._batches.add(arrays, row, row + 1)
            for _ in range(self._num_replays()):
                if self._ring.size < self.batch_size:
                    break
                slot = self._ring.draw(self._random.random())
                self._batches.add(self._ring.columns, slot, slot + 1)
                self.replayed += 1
            self._ring.store(arrays, row)

    def sample(self) -> Trajectories:
        """The oldest batch, `[batch_size, ...]`; the arrays are the caller's.

        Raises ValueError when there is none.
        """
        if not self._batches.ready:
            raise ValueError(
                f"cannot sample: {self.pending} unrolls of {self.batch_size} are there"
            )
        self.out += self.batch_size
        batch: Trajectories = unflatten_as(self._spec, self._batches.ready.popleft())
        return batch

    def finish(self) -> Trajectories | None:
        """The remainder, fewer than `batch_size` unrolls, or None if there is none.

        Whole batches are still to be sampled.
        """
        number, rest = self._batches.take_rest()
        self.out += number
        return unflatten_as(self._spec, rest) if number else None

    def state(self) -> dict[str, np.ndarray]:
        """Copies of everything, as arrays without Python objects.

        A memory restored from it goes on as this one would.
        """
        return {
            "settings": np.array(self._settings()),
            "spec": np.array(digest(self._spec)),
            "random": generator_text(self._random),
            "counts": np.array([self.fresh, self.replayed, self.out], np.int64),
            **{f"pending_{i}": a for i, a in enumerate(self._batches.pending())},
            **{f"ring_{name}": array for name, array in self._ring.state().items()},
        }

    def restore(self, state: State) -> None:
        """Goes on from `state`, which is copied.

        Raises ValueError, and changes nothing, for the state of a memory with other
        settings or spec, and for a damaged one; the error names what does not fit.
        """
        self._check_kind(state)
        random = saved_generator(state, "random")
        fresh, replayed, out = saved_counts(state, "counts", 3)
        number = fresh + replayed - out
        if number < 0:
            raise ValueError(f"'counts' of the state: {number} unrolls wait")
        pending = [
            saved_array(state, f"pending_{i}", leaf.dtype, (number, *leaf.shape))
            for i, leaf in enumerate(leaves(self._spec))
        ]
        fill_ring = self._ring.prepare_restore(
            {k[5:]: v for k, v in state.items() if k[:5] == "ring_"}
        )
        fill_ring()
        self._random = random
        self.fresh, self.replayed, self.out = fresh, replayed, out
        self._batches = _Batches(self._spec, self.batch_size)
        self._batches.add(pending, 0, number)

    def _check_kind(self, state: State) -> None:
        settings = saved_array(state, "settings", np.float64, (4,)).tolist()
        if settings != self._settings():
            raise ValueError(
                "batch_size, replay capacity, proportion and max_reuse (0: no limit) "
                f"are {self._settings()}, the state has {settings}"
            )
        if saved_text(state, "spec") != digest(self._spec):
            raise ValueError(f"state of another spec: {state['spec']}")

    def _settings(self) -> list[float]:
        capacity, max_reuse = self._ring.capacity, self._ring.max_reuse or 0
        return [float(self.batch_size), capacity, self._proportion, max_reuse]

    def _num_replays(self) -> int:
        whole, part = divmod(self._proportion, 1.0)
        return int(whole) + (part > 0 and self._random.random() < part)

    def _checked(self, trajectories: Trajectories) -> list[np.ndarray]:
        validate(self._spec, trajectories, 1, "trajectories")
        arrays = flatten_as(self._spec, trajectories)
        lengths = [len(array) for array in arrays]
        if min(lengths) != max(lengths):
            raise ValueError(f"trajectories with leaves of {lengths} unrolls")
        return arrays


class _Batches:
    """Rows one behind the other, cut into batches; leaves are flat lists."""

    def __init__(self, spec: Nest, batch_size: int):
        self.ready: deque[list[np.ndarray]] = deque()
        self.filled = 0  # rows of the batch that is being filled
        self._leaves, self._size = leaves(spec), batch_size
        self._filling = [leaf.zeros(0) for leaf in self._leaves]

    def add(self, arrays: Sequence[np.ndarray], first: int, end: int) -> None:
        """Copies the rows `[first, end)`."""
        while first < end:
            if not self.filled:
                self._filling = [
                    np.empty((self._size, *leaf.shape), leaf.dtype)
                    for leaf in self._leaves
                ]
            filled = min(self._size, self.filled + end - first)
            next_first = first + filled - self.filled
            for target, array in zip(self._filling, arrays, strict=True):
                target[self.filled : filled] = array[first:next_first]
            self.filled, first = filled, next_first
            if self.filled == self._size:
                self.ready.append(self._filling)
                self.filled = 0

    def take_rest(self) -> tuple[int, list[np.ndarray]]:
        """The rows of the batch that is not full; it begins anew."""
        number, self.filled = self.filled, 0
        return number, [array[:number] for array in self._filling]

    def pending(self) -> list[np.ndarray]:
        """Copies of all rows, joined."""
        rest = [array[: self.filled] for array in self._filling]
        return [np.concatenate(parts) for parts in zip(*self.ready, rest, strict=True)]


def _check_settings(
    batch_size: int, capacity: int, proportion: float, max_reuse: int | None
) -> None:
    if batch_size < 1 or capacity < 0:
        raise ValueError(f"impossible batch_size {batch_size} or capacity {capacity}")
    if not 0 <= proportion < np.inf:
        raise ValueError(f"replay_proportion must be finite, >= 0, got {proportion}")
    if max_reuse is not None and max_reuse < 1:
        raise ValueError(f"max_reuse must be at least 1, got {max_reuse}")
    if proportion > 0 and capacity < batch_size:
        raise ValueError(
            f"replay needs a replay_capacity of at least batch_size {batch_size} "
            f"unrolls, got {capacity}"
        )
    if max_reuse is not None and proportion > max_reuse:
        raise ValueError(
            f"replay_proportion {proportion} cannot be reached when each unroll is "
            f"replayed at most max_reuse {max_reuse} times"
        )
