import itertools

import numpy as np
import pytest

from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves, validate
from distrl.core.trajectories import trajectories_spec
from distrl.losses.returns import step_mask
from distrl.memories.unroll_accumulator import UnrollAccumulator

ID = ArraySpec((), "int64")
OBSERVATION = {"image": ArraySpec((2, 3), "uint8"), "plain": ID}
RAW = (ID, {"force": ArraySpec((2,), "float32")})
CORE = (ArraySpec((3,), "float32"), ArraySpec((3,), "float32"))


def nested_spec(num_steps):
    environment = EnvironmentSpec(OBSERVATION, ID)
    return trajectories_spec(environment, RAW, 2, num_steps, CORE)


def plain_spec(num_steps):
    environment = EnvironmentSpec(ID, ID)
    return trajectories_spec(environment, ID, 1, num_steps)


class Log:
    """What N streams did: row t of stream n is named 100 · t + n in every leaf.

    `ends[t, n]` says how the step of a row ends: 1 terminated, 2 truncated, 3 both.
    """

    def __init__(self, ends):
        self.ends = np.asarray(ends)
        self.num_rows, self.num_streams = self.ends.shape
        self.terminated, self.truncated = self.ends % 2 == 1, self.ends // 2 == 1
        self.is_last = np.zeros((self.num_rows + 1, self.num_streams), bool)
        for t, n in np.ndindex(*self.ends.shape):
            self.is_last[t + 1, n] = self.ends[t, n] > 0 and not self.is_last[t, n]

    def values(self, spec, t, slots=slice(None)):
        names = (100 * t + np.arange(self.num_streams))[slots]
        return map_nest(
            lambda leaf: np.broadcast_to(
                names.reshape(-1, *[1] * len(leaf.shape)), (len(names), *leaf.shape)
            ).astype(leaf.dtype),
            spec,
        )

    def begin(self, accumulator, t, slots=slice(None)):
        """The arrays that were given are overwritten at once."""
        size = len(range(self.num_streams)[slots])
        behaviour = self.values(ArraySpec((2,), "float32"), t, slots)
        given = (
            self.values(OBSERVATION, t, slots),
            self.values(RAW, t, slots),
            behaviour,
        )
        starts = t % accumulator.num_steps == 0
        state = self.values(CORE, t, slots) if starts else ()
        finished = accumulator.begin(*given, version(t), state, slots)
        for array in leaves((given, state)):
            array[...] = 77
        assert len(behaviour) == size
        return finished

    def end(self, accumulator, t, slots=slice(None)):
        reward = self.values(ArraySpec((), "float32"), t, slots)
        flags = self.terminated[t, slots].copy(), self.truncated[t, slots].copy()
        steps = accumulator.end(reward, *flags, slots)
        for array in (reward, *flags):
            array[...] = 0
        assert steps == np.count_nonzero(~self.is_last[t, slots])

    def check(self, finished, first, num_steps):
        """Everything in the unrolls whose row 0 is row `first`."""
        trajectories, env_steps = finished
        validate(nested_spec(num_steps), trajectories, 1, "trajectories")
        rows = range(first, first + num_steps)

        def stacked(spec, times):
            parts = [self.values(spec, t) for t in times]
            return map_nest(lambda *arrays: np.stack(arrays, axis=1), *parts)

        behaviour, scalar = ArraySpec((2,), "float32"), ArraySpec((), "float32")
        versions = [version(t) for t in rows]
        expected = trajectories._replace(
            observation=stacked(OBSERVATION, range(first, first + num_steps + 1)),
            raw_action=stacked(RAW, rows),
            behaviour=stacked(behaviour, rows),
            reward=stacked(scalar, rows),
            terminated=self.terminated[rows].T,
            truncated=self.truncated[rows].T,
            first_is_last=self.is_last[first],
            core_state=self.values(CORE, first),
            version=np.tile(versions, (self.num_streams, 1)),
        )
        map_nest(np.testing.assert_array_equal, trajectories, expected)
        mask = step_mask(
            trajectories.terminated.T,
            trajectories.truncated.T,
            trajectories.first_is_last,
        )
        np.testing.assert_array_equal(mask, ~self.is_last[rows])
        assert env_steps == np.count_nonzero(mask)


def version(t):
    return t // 2 + 5


def play(log, num_steps, groups=(slice(None),)):
    """Unroll sets of a log, checked at its end; the accumulator."""
    accumulator = UnrollAccumulator(nested_spec(num_steps), log.num_streams)
    sets = []
    for t in range(log.num_rows):
        for slots in groups:
            finished = log.begin(accumulator, t, slots)
            if finished is not None:
                assert slots == groups[-1] and t == (len(sets) + 1) * num_steps
                sets.append(finished)
        for slots in groups:
            log.end(accumulator, t, slots)
    for index, finished in enumerate(sets):
        log.check(finished, index * num_steps, num_steps)
    shipped = sum(env_steps for _, env_steps in sets)
    total = np.count_nonzero(~log.is_last[:-1])
    assert shipped + accumulator.pending_env_steps == total
    assert len(sets) == (log.num_rows - 1) // num_steps
    return sets, accumulator


def counted(streams, num_steps):
    """The observation windows of streams of numbers, played in lock-step."""
    accumulator = UnrollAccumulator(plain_spec(num_steps), len(streams))
    windows, zero = [], np.zeros(len(streams), bool)
    for row in zip(*streams, strict=True):
        observation = np.array(row)
        parameters = np.zeros((len(row), 1), np.float32)
        finished = accumulator.begin(observation, observation, parameters, 0)
        if finished is not None:
            windows.append(finished[0].observation.tolist())
        accumulator.end(np.zeros(len(row), np.float32), zero, zero)
    return windows, accumulator.pending_env_steps


def test_unrolls_overlap_by_one_row():
    windows, pending = counted([range(10, 17)], 3)
    assert windows == [[[10, 11, 12, 13]], [[13, 14, 15, 16]]]
    assert pending == 1
    windows, pending = counted([range(10, 17), range(20, 27)], 3)
    assert windows[1] == [[13, 14, 15, 16], [23, 24, 25, 26]]
    assert pending == 2
    windows, pending = counted([range(20, 24)], 3)
    assert windows == [[[20, 21, 22, 23]]]
    windows, pending = counted([range(20, 23)], 3)
    assert windows == [] and pending == 3
    assert counted([range(3)], 1)[0] == [[[0, 1]], [[1, 2]]]


@pytest.mark.parametrize("kind", [1, 2, 3])
@pytest.mark.parametrize("num_steps", [1, 3])
def test_an_end_at_every_row_of_an_unroll(kind, num_steps):
    """Two streams: one ends, with every outcome of the step that resets it."""
    for at, reset in itertools.product(range(3 * num_steps), range(4)):
        ends = np.zeros((4 * num_steps + 1, 2), int)
        ends[at, 0] = kind
        ends[at + 1, 0] = reset  # nothing of it counts
        play(Log(ends), num_steps)


@pytest.mark.parametrize("num_steps", [1, 2, 5])
def test_many_random_ends(num_steps):
    random = np.random.default_rng(num_steps)
    for share in (0.1, 0.5, 1.0):
        shape = 12 * num_steps + 2, 4
        ends = random.integers(1, 4, shape) * (random.random(shape) < share)
        play(Log(ends), num_steps)


def test_the_last_observation_at_row_0():
    sets, _ = play(Log([[0, 0], [0, 1], [0, 0], [2, 0], [0, 0]]), 2)
    first, second = (trajectories.first_is_last.tolist() for trajectories, _ in sets)
    assert first == [False, False] and second == [False, True]
    assert [env_steps for _, env_steps in sets] == [4, 3]


@pytest.mark.parametrize("groups", [[2, 1, 2], [1, 1, 1, 1, 1], [3, 2]])
def test_groups_fill_the_same_unrolls(groups):
    ends = np.cumsum(groups)
    slices = [slice(int(e) - g, int(e)) for e, g in zip(ends, groups, strict=True)]
    random = np.random.default_rng(0)
    log = Log(random.integers(0, 4, (25, 5)) * (random.random((25, 5)) < 0.3))
    play(log, 4, slices)


@pytest.mark.parametrize("lead", [1, 2])
def test_a_group_may_be_ahead_by_less_than_an_unroll(lead):
    """Each group of its own pace; unrolls are there when the last one has come."""
    log, num_steps = Log(np.zeros((13, 3), int)), 3
    accumulator = UnrollAccumulator(nested_spec(num_steps), 3)
    fast, slow, sets = slice(0, 2), slice(2, 3), []
    for t in range(log.num_rows):
        assert log.begin(accumulator, t, fast) is None
        log.end(accumulator, t, fast)
        if t >= lead:
            sets.append(log.begin(accumulator, t - lead, slow))
            log.end(accumulator, t - lead, slow)
    sets = [finished for finished in sets if finished is not None]
    assert len(sets) == (12 - lead) // num_steps
    for index, finished in enumerate(sets):
        log.check(finished, index * num_steps, num_steps)
    shipped = sum(env_steps for _, env_steps in sets)
    assert shipped + accumulator.pending_env_steps == 2 * 13 + 13 - lead


def test_a_group_too_far_ahead_is_refused_and_can_go_on_later():
    log = Log(np.zeros((5, 3), int))
    accumulator = UnrollAccumulator(nested_spec(2), 3)
    for t in range(4):
        assert log.begin(accumulator, t, slice(0, 2)) is None
        log.end(accumulator, t, slice(0, 2))
    with pytest.raises(ValueError, match="slots 0:2 .* all 3"):
        log.begin(accumulator, 4, slice(0, 2))
    for t in range(3):
        finished = log.begin(accumulator, t, slice(2, 3))
        log.end(accumulator, t, slice(2, 3))
    log.check(finished, 0, 2)
    assert log.begin(accumulator, 4, slice(0, 2)) is None


def test_what_was_handed_on_is_not_written_again():
    log = Log(np.zeros((20, 3), int))
    accumulator = UnrollAccumulator(nested_spec(2), 3)
    sets, copies = [], []
    for t in range(log.num_rows):
        finished = log.begin(accumulator, t)
        log.end(accumulator, t)
        if finished is not None:
            sets.append(finished[0])
            copies.append(map_nest(np.copy, finished[0]))
    map_nest(np.testing.assert_array_equal, sets, copies)
    arrays = [array for each in sets for array in leaves(each)]
    for one, other in itertools.combinations(arrays, 2):
        assert not np.shares_memory(one, other)
    assert all(array.flags.c_contiguous for array in arrays)


def test_core_states_may_be_views_of_what_is_overwritten():
    states = np.zeros((1, 3), np.float32)
    accumulator = UnrollAccumulator(nested_spec(2), 1)
    log, seen = Log(np.zeros((9, 1), int)), []
    for t in range(9):
        finished = accumulator.begin(
            log.values(OBSERVATION, t),
            log.values(RAW, t),
            np.zeros((1, 2), np.float32),
            t,
            (states, -states),
        )
        states += 1  # behind the step
        log.end(accumulator, t)
        if finished is not None:
            seen.append(finished[0].core_state)
    assert [state[0, 0] for state, _ in seen] == [0, 2, 4, 6]
    assert [state[0, 0] for _, state in seen] == [0, -2, -4, -6]


def filled(num_streams=3, num_steps=2):
    return Log(np.zeros((9, num_streams), int)), UnrollAccumulator(
        nested_spec(num_steps), num_streams
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("observation", {"image": 1}, "image"),
        ("raw_action", (np.zeros(3), {"force": np.zeros((3, 2), "f")}), "raw_action/0"),
        ("behaviour", np.zeros((3, 1), "f"), r"behaviour: .*\[3, 2\], .*\[3, 1\]"),
        ("behaviour", np.zeros((2, 2), "f"), r"behaviour: .*\[3, 2\], .*\[2, 2\]"),
        ("behaviour", np.zeros((3, 2)), "float32.*float64"),
        ("core_state", (), "core_state|tuple"),
    ],
)
def test_what_does_not_fit_a_begin_is_named(field, value, message):
    log, accumulator = filled()
    given = {
        "observation": log.values(OBSERVATION, 0),
        "raw_action": log.values(RAW, 0),
        "behaviour": np.zeros((3, 2), np.float32),
        "core_state": log.values(CORE, 0),
    }
    with pytest.raises(ValueError, match=message):
        accumulator.begin(**{**given, field: value}, version=0)


def test_what_does_not_fit_an_end_is_named():
    log, accumulator = filled()
    log.begin(accumulator, 0)
    good = {"reward": np.zeros(3, "f"), "terminated": np.zeros(3, bool)}
    with pytest.raises(ValueError, match=r"truncated: expected bool\[3\], got int64"):
        accumulator.end(**good, truncated=np.zeros(3, int))
    with pytest.raises(ValueError, match=r"reward: .*\[3\], got float32\[1\]"):
        accumulator.end(**{**good, "reward": np.zeros(1, "f")}, truncated=[False] * 3)
    assert accumulator.end(**good, truncated=[False] * 3) == 3


def test_calls_in_the_wrong_order_are_refused():
    log, accumulator = filled()
    with pytest.raises(ValueError, match="slots 0:3.*without begin"):
        log.end(accumulator, 0)
    log.begin(accumulator, 0)
    with pytest.raises(ValueError, match="slots 0:3.*before the end"):
        log.begin(accumulator, 1)


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (slice(0, 3), "slots 0:3.*slots 0:2"),
        (slice(1, 3), "slots 1:3.*slots 0:2"),
        (slice(0, 2, 2), "0:2:2"),
        (slice(3, 5), "3:3"),
        (slice(2, 1), "2:1"),
    ],
)
def test_other_groups_are_refused(slots, message):
    log, accumulator = filled()
    log.begin(accumulator, 0, slice(0, 2))
    with pytest.raises(ValueError, match=message):
        log.begin(accumulator, 0, slots)


def test_impossible_sizes_are_named():
    with pytest.raises(ValueError, match="num_streams 0 and num_steps 2"):
        UnrollAccumulator(nested_spec(2), 0)
    with pytest.raises(ValueError, match="num_streams 1 and num_steps 0"):
        UnrollAccumulator(nested_spec(0), 1)
