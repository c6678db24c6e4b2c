"""Made-up episodes with a name for everything, and what must become of them."""

from __future__ import annotations

import numpy as np

from distrl.core.nests import map_nest
from distrl.core.records import Experience, Transition
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.memories.n_step_accumulator import NStepAccumulator


def episode_spec(stack: int = 3) -> EnvironmentSpec:
    """A stacked leaf and a plain one; every frame and action is unique."""
    image = ArraySpec((stack, 2), "int32", num_stacked=stack)
    if stack == 1:
        image = ArraySpec((2,), "int32")
    observation = {"image": image, "plain": ArraySpec((), "int64")}
    return EnvironmentSpec(observation, {"name": ArraySpec((), "int64")})


class Episodes:
    """Rows of N streams in the NEXT_STEP layout, random ends of all three kinds.

    Frame, action and plain leaf of (producer, time, stream) carry the number
    `(producer * 10_000 + time) * 100 + stream`.
    """

    def __init__(self, producer: int, num_streams: int, stack: int, end: float = 0.2):
        self.producer, self.num_streams, self.stack = producer, num_streams, stack
        self.random = np.random.default_rng(producer)
        self.end = end
        self.rows: list[dict[str, np.ndarray]] = []
        self._start_row()

    def name(self, time: int, stream: np.ndarray | int) -> np.ndarray:
        return (self.producer * 10_000 + time) * 100 + np.asarray(stream)

    def _start_row(self) -> None:
        time, streams = len(self.rows), np.arange(self.num_streams)
        start = np.zeros(self.num_streams, np.int64)
        last = np.zeros(self.num_streams, bool)
        if time:
            before = self.rows[-1]
            start = np.where(before["last"], time, before["start"])
            ended = before["terminated"] | before["truncated"]
            last = ended & ~before["last"]
        self.rows.append({"start": start, "last": last})
        frames = [
            self.name(0, 0) + 100 * np.maximum(time - j, start) + streams
            for j in reversed(range(self.stack))
        ]
        image = np.stack(frames, axis=1)  # [N, k]
        image = np.stack((image, -image), axis=-1).astype(np.int32)
        row = self.rows[-1]
        row["image"] = image[:, 0] if self.stack == 1 else image
        row["plain"] = self.name(time, streams)
        row["value_max"] = self.random.normal(size=self.num_streams).astype("f")

    @property
    def observation(self) -> dict[str, np.ndarray]:
        return {key: self.rows[-1][key] for key in ("image", "plain")}

    def step(self) -> dict[str, np.ndarray]:
        """What `add` takes, for the row that ends here."""
        row, n = self.rows[-1], self.num_streams
        row["value_taken"] = self.random.normal(size=n).astype("f")
        row["reward"] = self.random.normal(size=n).astype("f")
        row["terminated"] = self.random.random(n) < self.end
        row["truncated"] = self.random.random(n) < self.end
        given = {
            "observation": self.observation,
            "action": {"name": row["plain"].copy()},
            **{
                key: row[key]
                for key in (
                    "value_taken",
                    "value_max",
                    "reward",
                    "terminated",
                    "truncated",
                )
            },
        }
        self._start_row()
        return given


def slow_transitions(episodes: Episodes, n_step: int, discount: float) -> dict:
    """Name -> (transition, priority), one step at a time, from the definition."""
    found = {}
    for stream in range(episodes.num_streams):
        for time, row in enumerate(episodes.rows[:-1]):
            if row["last"][stream]:
                continue
            total, factor, end = 0.0, 1.0, time
            while end < len(episodes.rows) - 1 and end - time < n_step:
                step = episodes.rows[end]
                total += factor * step["reward"][stream]
                factor *= discount
                end += 1
                if step["terminated"][stream]:
                    factor = 0.0
                if step["terminated"][stream] or step["truncated"][stream]:
                    break
            s_t = episodes.rows[end]
            error = total + factor * s_t["value_max"][stream]
            transition = Transition(
                {key: row[key][stream] for key in ("image", "plain")},
                {"name": row["plain"][stream]},
                np.float32(total),
                np.float32(factor),
                {key: s_t[key][stream] for key in ("image", "plain")},
            )
            priority = max(abs(error - row["value_taken"][stream]), 1e-6)
            found[int(row["plain"][stream])] = (transition, np.float32(priority))
    return found


def play(
    episodes: Episodes, num_rows: int, n_step: int, discount: float, block_length: int
) -> list[Experience]:
    """The blocks of an accumulator that saw `num_rows` rows, the last one a flush."""
    accumulator = NStepAccumulator(
        episode_spec(episodes.stack),
        episodes.num_streams,
        n_step,
        discount,
        block_length,
    )
    blocks = []
    for _ in range(num_rows):
        accumulator.add(**episodes.step())
        if accumulator.ready:
            blocks.append(accumulator.take()[0])
    last = episodes.rows[-1]
    blocks.append(accumulator.flush(episodes.observation, last["value_max"])[0])
    return blocks


class Expected(dict):
    """What `slow_transitions` found, of one or more producers."""

    def columns(self) -> tuple[np.ndarray, Transition]:
        """Sorted names and all transitions in their order, made once."""
        if not hasattr(self, "_columns"):
            names = sorted(self)
            rows = [self[name][0] for name in names]
            self._columns = (
                np.array(names),
                map_nest(lambda *leaf: np.stack(leaf), *rows),
            )
        return self._columns


def expect(producers: list[Episodes], n_step: int, discount: float) -> Expected:
    """`slow_transitions` of all producers together."""
    expected = Expected()
    for episodes in producers:
        expected.update(slow_transitions(episodes, n_step, discount))
    return expected


def assert_same(transitions: Transition, expected: Expected) -> None:
    """Every row `[B]` is what `expected` has under its action's name."""
    names, columns = expected.columns()
    rows = np.searchsorted(names, transitions.a_tm1["name"])
    want = map_nest(lambda leaf: leaf[rows], columns)
    np.testing.assert_array_equal(transitions.a_tm1["name"], want.a_tm1["name"])
    for key in ("image", "plain"):
        np.testing.assert_array_equal(transitions.s_tm1[key], want.s_tm1[key])
        np.testing.assert_array_equal(transitions.s_t[key], want.s_t[key])
    np.testing.assert_allclose(transitions.r_t, want.r_t, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(transitions.discount_t, want.discount_t, 1e-6)
