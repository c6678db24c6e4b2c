"""Every back-end shows bit by bit what the serial one shows."""

import copy
import functools

import numpy as np
import pytest
from back_ends import BACK_ENDS, FEW, LIMITS, SEEDS, fails, serial, zeros
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from nested_environment import NestedEnv, draw
from process_samples import Shows
from small_environments import CountEnv

from distrl.environments.slot_records import SlotSettings

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]
N, STEPS = 4, 200
DTYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split()
SHAPES = [(), (0,), (3,), (2, 1, 3)]


def run(make, mode):
    """All that can be seen in a reset and 200 steps; each compared or copied at once,
    since not every back-end lets it stay."""
    settings = SlotSettings(mode, keep_infos=True)
    rng = np.random.default_rng(5)
    with make(NestedEnv, N, SEEDS, settings, limits=LIMITS) as environment:
        assert environment.num_envs == N and environment.autoreset_mode is mode
        yield environment.spec, environment.render_mode, environment.observation_space
        yield environment.reset(options={"length": 6})
        for number in range(STEPS if mode is AutoresetMode.NEXT_STEP else STEPS // 3):
            rows = [draw(environment.action_space, rng) for _ in range(N)]
            step = environment.step(stacked(rows))
            yield step
            over = step.terminated | step.truncated
            if mode is AutoresetMode.DISABLED and over.any():
                with pytest.raises(ResetNeeded, match=f"environment {over.argmax()} "):
                    environment.step(stacked(rows))
                yield environment.reset(options={"reset_mask": over})
            if number == 40:
                yield environment.reset([1, 2, None, 4])


def stacked(rows):
    first = rows[0]
    if isinstance(first, dict):
        return {key: stacked([row[key] for row in rows]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked(list(parts)) for parts in zip(*rows, strict=True))
    return np.stack(rows)


@pytest.fixture(scope="module")
def reference():
    return functools.cache(
        lambda mode: [copy.deepcopy(one) for one in run(serial, mode)]
    )


def assert_same_run(make, mode, expected):
    number = 0
    for number, got in enumerate(run(make, mode)):  # noqa: B007
        wanted = expected[number]
        if number == 0:
            assert got == wanted
            continue
        assert type(got) is type(wanted)
        for mine, theirs in zip(got, wanted, strict=True):
            assert data_equivalence(mine, theirs, exact=True), (number, mine, theirs)
    assert number == len(expected) - 1


@pytest.mark.parametrize("make", BACK_ENDS.values(), ids=BACK_ENDS)
def test_nested_environments(make, reference):
    expected = reference(AutoresetMode.NEXT_STEP)
    ends = sum((step[2] | step[3]).sum() for step in expected[2:] if len(step) == 5)
    assert ends > 20 * N  # there is something to compare
    assert_same_run(make, AutoresetMode.NEXT_STEP, expected)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("make", FEW.values(), ids=FEW)
def test_other_autoreset_modes(make, mode, reference):
    expected = reference(mode)
    has_final = any("final_obs" in step[4] for step in expected[2:] if len(step) == 5)
    assert has_final == (mode is AutoresetMode.SAME_STEP)
    assert_same_run(make, mode, expected)


def box(dtype, shape):
    if np.dtype(dtype) == bool:
        return spaces.Box(0, 1, shape, bool)
    if np.dtype(dtype).kind == "f":
        return spaces.Box(-np.inf, np.inf, shape, dtype)
    limits = np.iinfo(dtype)
    return spaces.Box(limits.min, limits.max, shape, dtype)


def random_bytes(space, rng):
    """Any value of that dtype; no NaN, which would differ from itself."""
    dtype = np.dtype(space.dtype)
    count = int(np.prod(space.shape))
    if dtype.kind == "f":
        return rng.normal(size=space.shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, space.shape).astype(bool)
    data = rng.integers(0, 256, count * dtype.itemsize, np.uint8).tobytes()
    return np.frombuffer(data, dtype).reshape(space.shape)


@pytest.mark.parametrize("make", FEW.values(), ids=FEW)
def test_dtypes_and_shapes(make):
    rng = np.random.default_rng(0)
    found = {}
    for dtype in DTYPES:
        for shape in SHAPES:
            try:
                found[f"{dtype}{shape}"] = box(dtype, shape)
            except Exception as error:  # noqa: BLE001
                pytest.fail(f"{dtype}, {shape}: {error}")
    space = spaces.Dict(found)
    values = [{k: random_bytes(s, rng) for k, s in found.items()} for _ in range(4)]
    with make(functools.partial(Shows, space, *values), 2, limits=LIMITS) as env:
        seen = [env.reset()[0]] + [env.step(zeros(env)).observation for _ in range(3)]
    for batch, value in zip(seen, values, strict=True):
        assert set(batch) == set(value)
        for key, expected in value.items():
            assert batch[key].dtype == expected.dtype, key
            assert batch[key].shape == (2, *expected.shape), key
            for row in batch[key]:
                np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (), np.float16),
        spaces.Box(0, 1, (0,), np.float64),
        spaces.Discrete(5, start=-2),
        spaces.MultiBinary([2, 3]),
        spaces.Tuple([spaces.Discrete(3), spaces.Dict(a=spaces.MultiDiscrete([3, 4]))]),
    ],
    ids=str,
)
def test_spaces_that_are_no_dict(space):
    rng = np.random.default_rng(1)
    values = [draw(space, rng) for _ in range(5)]
    factory = functools.partial(Shows, space, *values)
    results = []
    for make in (serial, *FEW.values()):
        with make(factory, 2, limits=LIMITS) as env:
            seen = [env.reset()[0]]
            seen += [env.step(zeros(env)).observation for _ in range(4)]
            results.append(seen)
    for result in results[1:]:
        assert data_equivalence(result, results[0], exact=True)


@pytest.mark.parametrize("make", FEW.values(), ids=FEW)
def test_keys_in_another_order_and_wrong_structures(make):
    space = spaces.Dict(a=spaces.Box(0, 9, (2,), np.uint8), b=spaces.Discrete(3))
    good = {"b": 2, "a": np.array([3, 4], np.uint8)}
    wrong = [
        ({"a": good["a"]}, "leaf 'b'"),
        ({**good, "a": np.zeros(1, np.uint8)}, r"leaf 'a'.*uint8\[1\]"),  # broadcasts
        ((good["a"], 2), "leaf 'a'"),
    ]
    with make(functools.partial(Shows, space, good), 2, limits=LIMITS) as environment:
        first, _ = environment.reset()
        assert first["a"].tolist() == [[3, 4]] * 2 and first["b"].tolist() == [2, 2]
        assert environment.step([0, 0]).observation["b"].tolist() == [2, 2]
    for value, leaf in wrong:
        with make(
            functools.partial(Shows, space, good, value), 2, limits=LIMITS
        ) as env:
            env.reset()
            with fails(ValueError, f"environment 0 of 2: observation, {leaf}", 0):
                env.step(zeros(env))


@pytest.mark.parametrize("make", FEW.values(), ids=FEW)
@pytest.mark.parametrize(
    "value", [(np.zeros(2, "f4"),) * 2, np.zeros(1, "f4"), np.zeros((2, 2), "f4"), 0.5]
)
def test_a_box_that_is_shown_something_else(make, value):
    """V-16; a row would be broadcast, a tuple fill the whole buffer."""
    space = spaces.Box(0, 1, (2,), np.float32)
    good = np.zeros(2, np.float32)
    with make(functools.partial(Shows, space, good, value), 2, limits=LIMITS) as env:
        env.reset()
        with pytest.raises(ValueError, match="environment 0 of 2.*float32"):
            env.step(zeros(env))
        assert env.step(zeros(env)).observation.tolist() == [[0, 0]] * 2


@pytest.mark.parametrize("make", FEW.values(), ids=FEW)
def test_transitions_of_a_counter(make):
    """Never from the end of an episode to a start, and as many as there were steps."""
    with make(functools.partial(CountEnv, 3), 2, limits=LIMITS) as environment:
        last, _ = environment.reset()
        resetting, found = np.zeros(2, bool), []
        for _ in range(12):
            step = environment.step(zeros(environment))
            for slot in np.flatnonzero(~resetting):
                pair = last[slot], step.observation[slot], step.terminated[slot]
                found.append(tuple(int(x) for x in pair))
            last, resetting = step.observation, step.terminated | step.truncated
    assert found == [(i, i + 1, int(i == 2)) for i in range(3) for _ in range(2)] * 3
