"""Transitions in a ring, over frames that are stored once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from distrl.core.nests import flatten_as, unflatten_as
from distrl.core.records import Experience, Transition, frame_spec
from distrl.core.specs import EnvironmentSpec, digest, leaves
from distrl.memories.experience_check import ExperienceCheck
from distrl.memories.frame_store import FrameStore, write_ring
from distrl.memories.state_check import (
    State,
    saved_array,
    saved_counts,
    saved_text,
)
from distrl.memories.timelines import Timelines

_CHEAP_SLACK_BYTES = 1 << 24


class Stored(NamedTuple):
    """What became of the rows of one insertion."""

    num_rows: int  # rows stored; the others were orphans
    ids: np.ndarray  # int64 [L], those of them that are live now
    rows: np.ndarray  # int64 [L], their rows in the experience


class ReplayStorage:
    """The newest transitions, found by ids that count up for ever.

    Live ids are those in `[tail, head)`; id i lies at slot i % capacity. A row whose
    frames are unknown (a lost block, a forgotten producer) or gone is an orphan: it is
    dropped and counted.

    A live transition never refers to an overwritten frame. For that, the largest
    number seen so far of an oldest frame is kept with each row. It grows with the ids,
    and no row refers further than `frame_slack` frames behind it (one that does is an
    orphan), so the ids that may have lost a frame are a prefix, and they are evicted.
    The slack should be above the frames that arrive while one producer pauses, plus
    (n_step + num_stacked) · N. Unless given it is capacity / 20 + 2048 frames, and as
    many more, up to the capacity, as 16 MiB hold: small frames are cheap to keep.
    When the oldest frames go first, as with episodes of fewer than about 20 steps,
    there are fewer live transitions than `capacity`.
    """

    def __init__(
        self, spec: EnvironmentSpec, capacity: int, frame_slack: int | None = None
    ):
        sizes = _Sizes.of(spec, capacity, frame_slack)
        self.spec = spec
        self.capacity = capacity
        self.tail = 0
        self.head = 0
        self.orphans = 0
        self._check = ExperienceCheck(spec)
        self._slack = sizes.slack
        self._stacks = sizes.stacks
        self._steps_back = np.arange(sizes.longest_stack - 1, -1, -1)
        self._frames = FrameStore(frame_spec(spec.observation), sizes.frames)
        self._timelines = Timelines()
        self._frame_slots = np.zeros((capacity, 2, sizes.longest_stack), np.int32)
        self._horizon = np.zeros(capacity, np.int64)
        self._actions = [leaf.zeros(capacity) for leaf in leaves(spec.action)]
        self._rewards = np.zeros(capacity, np.float32)
        self._discounts = np.zeros(capacity, np.float32)

    @property
    def size(self) -> int:
        return self.head - self.tail

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays of a full storage."""
        return self._frames.num_bytes + sum(array.nbytes for array in self._columns())

    @property
    def bytes_per_transition(self) -> float:
        return self.num_bytes / self.capacity

    def insert(self, producer: Hashable, experience: Experience) -> Stored:
        """Stores what one producer sent, oldest row first.

        Raises ValueError when `experience` does not fit the spec or itself; nothing is
        stored then.
        """
        self._check(experience)
        timeline = self._timelines.of(producer)
        timeline.check_streams(experience.blocks)
        timeline.extend(experience.blocks, self._frames.append(experience.frames))
        times = np.stack((experience.time_tm1, experience.time_t), axis=1)  # [R, 2]
        times = np.maximum(
            times[:, :, None] - self._steps_back,
            experience.episode_start[:, None, None],
        )
        numbers = timeline.numbers(times, experience.stream[:, None, None])  # [R, 2, k]
        rows, horizon = self._usable(numbers)
        self.orphans += len(numbers) - len(rows)
        count = len(rows)
        self.head += count
        rows, horizon = rows[-self.capacity :], horizon[-self.capacity :]
        self._write(rows, horizon, numbers, experience)
        self._evict()
        live = rows[max(0, len(rows) - self.size) :]
        return Stored(count, np.arange(self.head - len(live), self.head), live)

    def live(self, ids: np.ndarray) -> np.ndarray:
        """Which of these ids are live, bool `[B]`."""
        return (ids >= self.tail) & (ids < self.head)

    def slots(self, ids: np.ndarray) -> np.ndarray:
        return ids % self.capacity

    def gather(self, ids: np.ndarray) -> Transition:
        """Copies of transitions, leaves `[B, ...]`.

        Raises ValueError for an id that is not live.
        """
        ids = np.asarray(ids, np.int64)
        live = self.live(ids)
        if not live.all():
            raise ValueError(f"id {ids[~live][0]} is not in [{self.tail}, {self.head})")
        slots = self.slots(ids)
        frame_slots = self._frame_slots.take(slots, axis=0)
        actions = [array.take(slots, axis=0) for array in self._actions]
        return Transition(
            s_tm1=self._observation(frame_slots[:, 0]),
            a_tm1=unflatten_as(self.spec.action, actions),
            r_t=self._rewards.take(slots),
            discount_t=self._discounts.take(slots),
            s_t=self._observation(frame_slots[:, 1]),
        )

    def _observation(self, frame_slots: np.ndarray) -> Any:
        """Observations `[B, ...]` from the slots `[B, k]` of their frames."""
        taken = [
            self._frames.take(i, frame_slots[:, -n:] if n > 1 else frame_slots[:, -1])
            for i, n in enumerate(self._stacks)
        ]
        return unflatten_as(self.spec.observation, taken)

    def _usable(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows whose frames are all there, and the horizon at each of them."""
        oldest = numbers.min(axis=(1, 2))
        rows = np.flatnonzero(oldest >= self._frames.oldest)
        oldest = oldest[rows]
        last = self._horizon[(self.head - 1) % self.capacity]  # 0 at first
        horizon = np.maximum(np.maximum.accumulate(oldest), last)
        near = oldest >= horizon - self._slack
        return rows[near], horizon[near]

    def _write(
        self,
        rows: np.ndarray,
        horizon: np.ndarray,
        numbers: np.ndarray,
        experience: Experience,
    ) -> None:
        """Writes `rows` at the slots before `head`; what lay there is evicted."""
        first = self.head - len(rows)
        self.tail = max(self.tail, self.head - self.capacity)
        write_ring(self._frame_slots, first, self._frames.slots(numbers[rows]))
        write_ring(self._horizon, first, horizon)
        write_ring(self._rewards, first, experience.reward[rows])
        write_ring(self._discounts, first, experience.discount[rows])
        actions = flatten_as(self.spec.action, experience.action)
        for ring, array in zip(self._actions, actions, strict=True):
            write_ring(ring, first, array[rows])

    def _evict(self) -> None:
        """Moves the tail past all ids that may refer to overwritten frames."""
        needed = self._frames.oldest + self._slack
        while self.tail < self.head:
            slot = self.tail % self.capacity
            lap = self._horizon[slot : slot + self.size]  # up to the ring's end
            if self._frames.oldest == 0 or lap[0] >= needed:
                return
            gone = int(lap.searchsorted(needed))
            self.tail += gone

    def _columns(self) -> list[np.ndarray]:
        return [
            self._frame_slots,
            self._horizon,
            self._rewards,
            self._discounts,
            *self._actions,
        ]

    def state(self) -> dict[str, np.ndarray]:
        """Copies of all that is stored, without Python objects."""
        used = min(self.head, self.capacity)
        return {
            "layout": np.array(self._layout()),
            "spec": np.array(digest(self.spec)),
            "range": np.array([self.tail, self.head, self.orphans], np.int64),
            **{f"column_{i}": c[:used].copy() for i, c in enumerate(self._columns())},
            **{f"frames/{k}": v for k, v in self._frames.state().items()},
            **{f"timelines/{k}": v for k, v in self._timelines.state().items()},
        }

    def prepare_restore(self, state: State) -> Callable[[], None]:
        """What takes `state` over once it is called; nothing changes before.

        Raises ValueError when capacities or spec differ, and for a damaged state.
        """
        tail, head, orphans = self._saved_range(state)
        used = min(head, self.capacity)
        columns = [
            saved_array(state, f"column_{i}", c.dtype, (used, *c.shape[1:]))
            for i, c in enumerate(self._columns())
        ]
        self._check_frame_slots(columns[0])
        frames = self._frames.prepare_restore(_below(state, "frames/"))
        timelines = self._timelines.prepare_restore(_below(state, "timelines/"))

        def take_over() -> None:
            self.tail, self.head, self.orphans = tail, head, orphans
            for ring, column in zip(self._columns(), columns, strict=True):
                ring[:used] = column
            frames()
            timelines()

        return take_over

    def _saved_range(self, state: State) -> list[int]:
        """Tail, head and orphans of a state that is of this kind of storage."""
        layout = saved_counts(state, "layout", 3)
        if layout != self._layout():
            raise ValueError(
                f"capacity, frame capacity and slack are {self._layout()}, the state "
                f"has {layout}"
            )
        if saved_text(state, "spec") != digest(self.spec):
            raise ValueError(f"state of another spec: {state['spec']}")
        tail, head, orphans = saved_counts(state, "range", 3)
        if not head - self.capacity <= tail <= head:
            raise ValueError(
                f"a state with ids [{tail}, {head}) for a capacity of {self.capacity}"
            )
        return [tail, head, orphans]

    def _check_frame_slots(self, slots: np.ndarray) -> None:
        """Raises ValueError for one that `gather` could not follow."""
        if slots.size and not 0 <= slots.min() <= slots.max() < self._frames.capacity:
            raise ValueError(
                f"a state with frames at {slots.min()} to {slots.max()} of "
                f"{self._frames.capacity}"
            )

    def _layout(self) -> list[int]:
        return [self.capacity, self._frames.capacity, self._slack]


class _Sizes(NamedTuple):
    slack: int
    frames: int
    stacks: list[int]
    longest_stack: int

    @classmethod
    def of(cls, spec: EnvironmentSpec, capacity: int, slack: int | None) -> _Sizes:
        """Raises ValueError for an impossible capacity or slack."""
        if slack is None:
            frame = sum(leaf.num_bytes for leaf in leaves(frame_spec(spec.observation)))
            cheap = _CHEAP_SLACK_BYTES // max(1, frame)
            slack = capacity // 20 + 2048 + min(max(0, capacity), cheap)
        if capacity < 1 or slack < 0:
            raise ValueError(f"impossible capacity {capacity} or frame slack {slack}")
        stacks = [leaf.num_stacked for leaf in leaves(spec.observation)]
        # One slack for rows out of order, one for rows that lag behind the frames.
        num_frames = capacity + capacity // 20 + 2 * slack
        return cls(slack, num_frames, stacks, max(stacks))


def predicted_bytes(spec: EnvironmentSpec, capacity: int) -> int:
    """The bytes that a full ReplayStorage takes; allocates nothing."""
    sizes = _Sizes.of(spec, capacity, None)
    frame = sum(leaf.num_bytes for leaf in leaves(frame_spec(spec.observation)))
    action = sum(leaf.num_bytes for leaf in leaves(spec.action))
    row = action + 2 * 4 * sizes.longest_stack + 8 + 4 + 4
    return capacity * row + sizes.frames * frame


def _below(state: State, prefix: str) -> State:
    """The entries under `prefix`, without it."""
    return {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}
