"""Which frame a producer showed at which time."""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np

from distrl.memories.state_check import State, saved_array, saved_texts

MIN_HISTORY = 1024  # times; n_step + num_stacked + block length must fit


class Timelines:
    """For every producer the map from its times to frame numbers.

    A producer is any hashable key, such as (job, task, incarnation). When there are
    more than `max_producers`, those that have been silent longest are forgotten.
    """

    def __init__(self, max_producers: int = 4096):
        if max_producers < 1:
            raise ValueError(f"max_producers must be at least 1, got {max_producers}")
        self._max_producers = max_producers
        self._timelines: OrderedDict[Hashable, Timeline] = OrderedDict()

    def __len__(self) -> int:
        return len(self._timelines)

    def of(self, producer: Hashable) -> Timeline:
        """The producer's timeline, which is the youngest now."""
        timeline = self._timelines.setdefault(producer, Timeline())
        self._timelines.move_to_end(producer)
        if len(self._timelines) > self._max_producers:
            self._timelines.popitem(last=False)
        return timeline

    def state(self) -> dict[str, np.ndarray]:
        """Arrays without Python objects: keys are kept as their repr.

        A named tuple is kept as the plain one, which is the same key. Raises
        ValueError for a key that cannot be read back from its repr.
        """
        timelines = list(self._timelines.values())
        return {
            "keys": np.array([_readable(key) for key in self._timelines], np.str_),
            "num_streams": np.array([t.num_streams for t in timelines], np.int64),
            "history": np.array([t.history for t in timelines], np.int64),
            "times": _joined([t.times for t in timelines]),
            "bases": _joined([t.bases for t in timelines]),
        }

    def restore(self, state: State) -> None:
        """Raises ValueError for what is no such state; nothing changes then."""
        self.prepare_restore(state)()

    def prepare_restore(self, state: State) -> Callable[[], None]:
        """What takes `state` over once it is called; nothing changes before.

        Raises ValueError as `restore` does.
        """
        keys = _saved_keys(state)
        num_streams = saved_array(state, "num_streams", np.int64, (len(keys),))
        history = saved_array(state, "history", np.int64, (len(keys),))
        if (history < 1).any():
            raise ValueError(f"'history' of the state: impossible {history.tolist()}")
        times = saved_array(state, "times", np.int64, (int(history.sum()),))
        bases = saved_array(state, "bases", np.int64, times.shape)
        restored: OrderedDict[Hashable, Timeline] = OrderedDict()
        for key, streams, end, length in zip(
            keys, num_streams, history.cumsum(), history, strict=True
        ):
            part = slice(end - length, end)
            restored[key] = Timeline.of(int(streams), times[part], bases[part])

        def take_over() -> None:
            self._timelines = restored

        return take_over


class Timeline:
    """The frame numbers of one producer's newest times.

    The frames of one time lie together: the frame of stream e is `base(time) + e`.
    The history is a ring over times that grows to twice what arrives in one piece.
    """

    def __init__(self, history: int = MIN_HISTORY):
        self.num_streams = 0  # unknown yet
        self.history = history
        self.times = np.full(history, -1, np.int64)
        self.bases = np.full(history, -1, np.int64)

    @classmethod
    def of(cls, num_streams: int, times: np.ndarray, bases: np.ndarray) -> Timeline:
        """One with this history; the arrays are copied."""
        timeline = cls(len(times))
        timeline.num_streams = num_streams
        timeline.times[:], timeline.bases[:] = times, bases
        return timeline

    def extend(self, blocks: np.ndarray, first_number: int) -> None:
        """Adds blocks int64 `[K, 4]` whose frames are numbered from `first_number`."""
        lengths = blocks[:, 1]
        count = int(lengths.sum())
        if not count:
            return
        self.num_streams = int(blocks[0, 2])
        position = np.arange(count)
        skipped = np.repeat(blocks[:, 0] - (lengths.cumsum() - lengths), lengths)
        self._reserve(count)
        times = position + skipped
        slots = times % self.history
        self.times[slots] = times
        self.bases[slots] = first_number + position * self.num_streams

    def numbers(self, times: np.ndarray, stream: np.ndarray) -> np.ndarray:
        """Frame numbers at `times` of `stream` (broadcast), -1 for unknown times."""
        slots = times % self.history
        known = self.times.take(slots) == times
        return np.where(known, self.bases.take(slots) + stream, -1)

    def check_streams(self, blocks: np.ndarray) -> None:
        """Raises ValueError when the number of streams is not that of before."""
        expected = self.num_streams or (int(blocks[0, 2]) if len(blocks) else 0)
        if (blocks[:, 2] != expected).any():
            raise ValueError(
                f"a producer of {expected} streams sent blocks of "
                f"{blocks[:, 2].tolist()} streams"
            )

    def _reserve(self, count: int) -> None:
        if 2 * count <= self.history:
            return
        old_times, old_bases = self.times, self.bases
        grown = Timeline(1 << (2 * count - 1).bit_length())
        self.history, self.times, self.bases = grown.history, grown.times, grown.bases
        kept = old_times >= 0
        slots = old_times[kept] % self.history
        self.times[slots], self.bases[slots] = old_times[kept], old_bases[kept]


def _readable(key: Hashable) -> str:
    text = repr(tuple(key) if isinstance(key, tuple) else key)
    try:
        same = ast.literal_eval(text) == key
    except (ValueError, SyntaxError):
        same = False
    if not same:
        raise ValueError(f"producer {key!r} cannot be saved: use strings and numbers")
    return text


def _saved_keys(state: State) -> list[Hashable]:
    """The keys, all different. Raises ValueError."""
    try:
        keys = [ast.literal_eval(text) for text in saved_texts(state, "keys")]
        different = len(set(keys)) == len(keys)
    except (ValueError, SyntaxError, TypeError) as error:
        raise ValueError(f"'keys' of the state: {error}") from error
    if not different:
        raise ValueError(f"'keys' of the state: repeated ones in {keys}")
    return keys


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
