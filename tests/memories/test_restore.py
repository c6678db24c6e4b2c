"""Memories that go on from a snapshot on disk, and states that they refuse."""

from typing import NamedTuple

import numpy as np
import pytest
from episode_data import Episodes, episode_spec, play

from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.snapshots import SnapshotWriter, load_newest
from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves
from distrl.core.trajectories import trajectories_spec
from distrl.memories.prioritized import PrioritizedMemory
from distrl.memories.rate_limiter import RateLimiter
from distrl.memories.state_check import saved_generator
from distrl.memories.trajectory_memory import TrajectoryMemory
from distrl.memories.uniform import UniformMemory

SPEC = episode_spec(3)
ID = ArraySpec((), "int64")
UNROLLS = trajectories_spec(EnvironmentSpec(ID, ID), {"id": ID}, 2, 3, ())


class Producer(NamedTuple):
    """As channels name who sends."""

    job: str
    task: int
    incarnation: int


def through_disk(tmp_path, memory, other):
    """`other` goes on from what `memory` is now."""
    store = CheckpointStore(tmp_path / "memory-0")
    writer = SnapshotWriter(store)
    assert writer.finish(3, memory.state, {"rows": memory_rows(memory)}, 30.0)
    assert load_newest(store, other.restore) == {"rows": memory_rows(other)}


def memory_rows(memory):
    return memory.fresh if isinstance(memory, TrajectoryMemory) else memory.inserted


def assert_same_bits(one, two):
    assert list(one) == list(two)
    for name, array in one.items():
        other = np.asarray(two[name])
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        assert array.tobytes() == other.tobytes(), name


def replay_memory(kind, seed=5, capacity=400, spec=SPEC, **options):
    if kind is PrioritizedMemory:
        options = {"importance_sampling_exponent": 0.7, **options}
    return kind(spec, capacity, seed, **options)


def used_replay(kind, until=40, **options):
    """Has wrapped around, was sampled and updated; and the blocks to come."""
    blocks = [
        [
            (Producer("actor", n, 7 + n), block)
            for block in play(episodes, 250, 3, 0.9, 6)
        ]
        for n, episodes in enumerate((Episodes(1, 2, 3), Episodes(2, 3, 3)))
    ]
    blocks = [pair for pairs in zip(*blocks, strict=True) for pair in pairs]
    memory = replay_memory(kind, **options)
    drive(memory, blocks[:until], np.random.default_rng(1))
    return memory, blocks[until:]


def drive(memory, blocks, random):
    """Inserts, samples and updates, stale ids among them; all that came out."""
    out = []
    for producer, block in blocks:
        out.append(np.array(memory.insert(producer, block)))
        batch = memory.sample(2, 16)
        out += [batch.id, batch.weight, *leaves(batch.transition)]
        ids = np.concatenate((batch.id, [0, memory.inserted + 5]))
        out.append(np.array(memory.update(ids, random.random(len(ids)) + 0.01)))
    return out


@pytest.mark.parametrize("kind", [UniformMemory, PrioritizedMemory])
def test_a_replay_goes_on_bit_for_bit(kind, tmp_path):
    memory, coming = used_replay(kind)
    assert memory.inserted > memory.capacity and memory.stale_updates > 0
    other = replay_memory(kind, seed=99)
    through_disk(tmp_path, memory, other)
    assert_same_bits(memory.state(), other.state())
    assert len(coming) > 20
    outs = [drive(each, coming, np.random.default_rng(2)) for each in (memory, other)]
    for one, two in zip(*outs, strict=True):
        assert one.tobytes() == two.tobytes() and one.dtype == two.dtype
    assert_same_bits(memory.state(), other.state())
    if kind is PrioritizedMemory:
        assert memory._tree.total == other._tree.total
        for one, two in zip(memory._tree._levels, other._tree._levels, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", [UniformMemory, PrioritizedMemory])
def test_a_replay_that_is_not_full_goes_on_over_what_it_held(kind, tmp_path):
    memory, coming = used_replay(kind, until=6)
    assert memory.inserted < memory.capacity
    other, _ = used_replay(kind, seed=99)  # has wrapped: all of it goes
    through_disk(tmp_path, memory, other)
    outs = [drive(each, coming, np.random.default_rng(2)) for each in (memory, other)]
    for one, two in zip(*outs, strict=True):
        assert one.tobytes() == two.tobytes()
    assert_same_bits(memory.state(), other.state())


@pytest.mark.parametrize("kind", [UniformMemory, PrioritizedMemory])
def test_an_empty_replay_goes_round(kind, tmp_path):
    memory, (other, coming) = replay_memory(kind), used_replay(kind, seed=99)
    through_disk(tmp_path, memory, other)
    assert other.size == 0
    outs = [drive(each, coming, np.random.default_rng(2)) for each in (memory, other)]
    for one, two in zip(*outs, strict=True):
        assert one.tobytes() == two.tobytes()


def unrolls(*ids):
    """Every element is the id of its unroll."""
    column = np.array(ids)

    def leaf(spec):
        value = column.reshape(-1, *[1] * len(spec.shape))
        return np.broadcast_to(value, (len(ids), *spec.shape)).astype(spec.dtype)

    return map_nest(leaf, UNROLLS)


def trajectory_memory(seed=5, batch_size=4):
    return TrajectoryMemory(UNROLLS, batch_size, seed, 10, 1.5, 3)


def used_trajectories(seed=5, number=43):
    memory = trajectory_memory(seed)
    play_unrolls(memory, 0, number)
    return memory


def play_unrolls(memory, first, end):
    out = []
    for number in range(first, end, 3):
        memory.insert(unrolls(*range(number, number + 3)))
        if number % 2 and memory.can_sample:
            out += leaves(memory.sample())
    return out


@pytest.mark.parametrize("number", [0, 4, 43])
def test_trajectories_go_on_bit_for_bit(number, tmp_path):
    memory, other = used_trajectories(5, number), used_trajectories(6, 22)
    assert memory.available > 1 or number < 43
    through_disk(tmp_path, memory, other)
    assert_same_bits(memory.state(), other.state())
    outs = [play_unrolls(each, 100, 160) for each in (memory, other)]
    assert len(outs[0]) > 5
    for one, two in zip(*outs, strict=True):
        assert one.tobytes() == two.tobytes()
    assert_same_bits(memory.state(), other.state())


def test_a_limiter_goes_on():
    one, other = (RateLimiter(2.0, 5, tolerance=8.0) for _ in range(2))
    one.insert(9)
    one.sample(11)
    other.restore(one.state())
    for rows in range(1, 30):
        assert one.can_insert(rows) == other.can_insert(rows)
        assert one.can_sample(rows) == other.can_sample(rows)
    assert one.state() == other.state() and one.ratio == other.ratio


@pytest.mark.parametrize(
    "state", [{}, {"inserted": 3}, {"inserted": 3, "sampled": -1}, {"sampled": 4}]
)
def test_a_limiter_refuses_what_does_not_fit_and_stays_as_it_is(state):
    limiter = RateLimiter(2.0, 5, tolerance=8.0)
    limiter.insert(9)
    with pytest.raises(ValueError, match="inserted and sampled"):
        limiter.restore(state)
    assert limiter.state() == {"inserted": 9, "sampled": 0}


# What is refused changes nothing.


MAKERS = {
    "uniform": lambda: used_replay(UniformMemory)[0],
    "prioritized": lambda: used_replay(PrioritizedMemory)[0],
    "trajectories": used_trajectories,
}


@pytest.fixture(scope="module", params=sorted(MAKERS))
def pair(request):
    """A memory in use, and the state of another one of its kind."""
    return MAKERS[request.param](), MAKERS[request.param]().state()


def refused(memory, state, match):
    before = memory.state()
    with pytest.raises(ValueError, match=match):
        memory.restore(state)
    assert_same_bits(before, memory.state())


def test_what_is_missing_is_named(pair):
    memory, state = pair
    for name in state:
        rest = {key: value for key, value in state.items() if key != name}
        refused(memory, rest, f"has no '{name.split('/')[-1].removeprefix('ring_')}'")


def other_dtype(array):
    if array.dtype.kind == "U":
        return np.zeros(array.shape, np.int64)
    wrong = np.float32 if array.dtype == np.float64 else np.float64
    return array.astype(wrong)


DAMAGE = {
    "dtype": other_dtype,
    "rank": lambda array: array[None],
    "objects": lambda array: array.astype(object),
    "longer": lambda array: np.concatenate((array, array[:1])) if array.ndim else None,
    "shorter": lambda array: array[:-1] if array.ndim else None,
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_wrong_dtype_or_shape_is_refused(pair, damage):
    memory, state = pair
    for name, array in state.items():
        wrong = DAMAGE[damage](array)
        if wrong is not None:
            refused(memory, {**state, name: wrong}, "state")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "nonsense", '{"bit_generator": "MT19937", "state": {}}']
)
def test_what_is_no_generator_is_refused(pair, text):
    memory, state = pair
    refused(memory, {**state, "random": np.array(text)}, "'random'")
    assert saved_generator(state, "random").random() >= 0


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("kind", "SomeMemory", "SomeMemory"),
        ("spec", "abc", "abc"),
        ("layout", [3, 4, 5], "400.*3, 4, 5"),
        ("range", [9, 8, 0], r"\[9, 8\)"),
        ("range", [0, 5000, 0], r"\[0, 5000\)"),
        ("range", [0, 5, -1], "-1"),
        ("stale_updates", -2, "-2"),
        ("frames/written", -7, "-7"),
        ("timelines/keys", ["(", "'a'"], "keys"),
        ("timelines/keys", ["'a'", "'a'"], "repeated"),
        ("timelines/keys", ["[1]", "'a'"], "keys"),
        ("timelines/history", [0, 2048], "history"),
        ("priority_exponent", 0.9, "0.6.*0.9"),
        ("largest", np.nan, "nan"),
    ],
)
def test_impossible_values_of_a_replay_are_named(name, value, match):
    memory, _ = used_replay(PrioritizedMemory)
    refused(memory, {**memory.state(), name: np.array(value)}, match)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_priorities_that_cannot_be_drawn_by_are_named(value):
    memory, _ = used_replay(PrioritizedMemory)
    state = memory.state()
    state["leaves"][memory.inserted % memory.capacity - 1] = value
    refused(memory, state, f"leaves.*{value}")


@pytest.mark.parametrize("slot", [-1, 10**6])
def test_frames_that_are_nowhere_are_named(slot):
    memory, _ = used_replay(UniformMemory)
    state = memory.state()
    state["column_0"][7, 0, 0] = slot
    refused(memory, state, str(slot))


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("settings", [4.0, 11.0, 1.5, 3.0], "10.*11"),
        ("spec", "abc", "abc"),
        ("counts", [3, 0, 9], "-6"),
        ("counts", [3, -1, 0], "-1"),
        ("ring_next", -3, "-3"),
        ("ring_number", np.arange(11), "11 unrolls, capacity 10"),
    ],
)
def test_impossible_values_of_trajectories_are_named(name, value, match):
    memory = used_trajectories()
    refused(memory, {**memory.state(), name: np.array(value)}, match)


def test_a_memory_that_refused_a_state_is_as_new():
    fresh, refusing = (replay_memory(PrioritizedMemory) for _ in range(2))
    memory, coming = used_replay(PrioritizedMemory, capacity=500)
    with pytest.raises(ValueError, match="400.*500"):
        refusing.restore(memory.state())
    outs = [drive(m, coming, np.random.default_rng(2)) for m in (fresh, refusing)]
    for one, two in zip(*outs, strict=True):
        assert one.tobytes() == two.tobytes()
