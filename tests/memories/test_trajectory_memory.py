import numpy as np
import pytest

from distrl.core.nests import map_nest, unflatten_as
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves, validate
from distrl.core.trajectories import trajectories_spec
from distrl.memories.trajectory_memory import TrajectoryMemory

T = 2
ID = ArraySpec((), "int64")
OBSERVATION = {"image": ArraySpec((3, 2), "uint8"), "plain": ArraySpec((), "float32")}
CORE = (ArraySpec((3,), "float32"), ArraySpec((3,), "float32"))
SPEC = trajectories_spec(EnvironmentSpec(OBSERVATION, ID), {"id": ID}, 2, T, CORE)


def unrolls(*ids):
    """Every element of every leaf follows from the unroll's id."""
    column = np.array(ids, np.int64)

    def leaf(spec, index):
        value = (column * 7 + index).reshape(-1, *[1] * len(spec.shape))
        return np.broadcast_to(value, (len(ids), *spec.shape)).astype(spec.dtype)

    flat = [leaf(spec, index) for index, spec in enumerate(leaves(SPEC))]
    record = unflatten_as(SPEC, flat)
    return record._replace(version=np.repeat(column[:, None], T, axis=1))


def ids_of(batch):
    """The ids of a batch, of which every leaf is checked."""
    validate(SPEC, batch, 1, "batch")
    ids = batch.version[:, 0].tolist()
    expected = unrolls(*ids)
    map_nest(np.testing.assert_array_equal, batch, expected)
    return ids


def drain(memory):
    """The ids of all whole batches, a list each; the books are right throughout."""
    batches = []
    while memory.can_sample:
        check_books(memory)
        available = memory.available
        batches.append(ids_of(memory.sample()))
        assert memory.available == available - 1
    check_books(memory)
    return batches


def check_books(memory):
    assert memory.fresh + memory.replayed == memory.out + memory.pending
    assert memory.pending // memory.batch_size == memory.available


@pytest.mark.parametrize("batch_size", [1, 3, 4, 16])
@pytest.mark.parametrize("sizes", [[1], [2, 5], [3], [0, 7, 1], [33]])
def test_without_replay_batches_have_their_size_and_the_order_of_arrival(
    batch_size, sizes
):
    memory, batches, number = TrajectoryMemory(SPEC, batch_size, 0), [], 0
    for size in sizes * 7:
        memory.insert(unrolls(*range(number, number + size)))
        number += size
        batches += drain(memory)
        assert memory.pending < batch_size and memory.fresh == number
    assert {len(batch) for batch in batches} <= {batch_size}
    rest = memory.finish()
    assert (rest is None) == (number % batch_size == 0)
    seen = [each for batch in batches for each in batch]
    assert seen + (ids_of(rest) if rest else []) == list(range(number))
    assert memory.replayed == memory.stored == memory.pending == 0
    assert memory.out == number and memory.finish() is None


def play(memory, number, block=1, first=0):
    """Inserts `number` unrolls with ids from `first` on; the ids that came out."""
    seen = []
    for start in range(first, first + number, block):
        memory.insert(unrolls(*range(start, min(start + block, first + number))))
        seen += drain(memory)
    rest = memory.finish()
    check_books(memory)
    return [each for batch in seen for each in batch] + (ids_of(rest) if rest else [])


def behind_each(seen):
    """For every fresh unroll, in order, the replayed ones that came behind it."""
    behind = []
    for each in seen:
        if each == len(behind):  # ids count up: the first time is the fresh one
            behind.append([])
        else:
            assert each < len(behind)
            behind[-1].append(each)
    return behind


@pytest.mark.parametrize("proportion", [0.25, 0.5, 1.0, 1.5, 2.0, 2.75, 10.0])
def test_replay_has_the_exact_expectation(proportion):
    number = 2_000 if proportion == 10 else 20_000
    memory = TrajectoryMemory(SPEC, 64, 1, 80, proportion)
    behind = behind_each(play(memory, number + 64, 200))
    assert len(behind) == number + 64
    counts = np.array([len(each) for each in behind])
    assert not counts[:64].any()  # fewer than a batch were stored
    counts = counts[64:]
    assert set(counts) == {int(np.floor(proportion)), int(np.ceil(proportion))}
    assert counts.mean() == pytest.approx(proportion, abs=0.02)
    assert memory.replayed == counts.sum() and memory.fresh == number + 64


def test_replay_draws_uniformly_from_the_stored_ones_and_copies_them():
    memory = TrajectoryMemory(SPEC, 10, 2, 10, 2.0)
    for number in range(4_000):
        given = unrolls(number)
        memory.insert(given)
        for array in leaves(given):
            array[...] = 1
    seen = [each for batch in drain(memory) for each in batch]
    counts = np.zeros((10, 12))  # by place in the ring and by age
    for number, drawn in enumerate(behind_each(seen)):
        for each in drawn if number >= 10 else ():
            counts[number % 10, number - each] += 1
    assert not counts[:, [0, 11]].any()
    counts, expected = counts[:, 1:11], counts.sum() / 100
    assert ((counts - expected) ** 2 / expected).sum() < 150  # χ², 99 ± 14
    assert memory.stored == 10


def test_every_unroll_is_in_one_batch_as_a_fresh_one_and_at_most_k_times_again():
    for max_reuse, proportion in ((1, 0.5), (2, 1.5), (3, 3.0), (1, 1.0)):
        memory = TrajectoryMemory(SPEC, 8, 3, 20, proportion, max_reuse)
        uses = np.bincount(play(memory, 1_000, 15), minlength=1_000)
        assert uses.min() == 1 and uses.max() == 1 + max_reuse
        assert uses.sum() == 1_000 + memory.replayed


@pytest.mark.parametrize(("proportion", "max_reuse"), [(1.0, 2), (1.0, 1), (2.5, 4)])
def test_a_limit_above_the_proportion_leaves_the_expectation_alone(
    proportion, max_reuse
):
    memory = TrajectoryMemory(SPEC, 20, 3, 200, proportion, max_reuse)
    seen = play(memory, 2_000, 50)
    assert (len(seen) - 2_000) / 1_980 == pytest.approx(proportion, rel=0.04)


def test_replay_begins_when_a_batch_is_stored_also_in_the_smallest_ring():
    memory = TrajectoryMemory(SPEC, 5, 0, 5, 1.0)
    assert [len(each) for each in behind_each(play(memory, 9))] == [0] * 5 + [1] * 4


def test_the_result_does_not_depend_on_the_sizes_of_blocks_but_on_the_seed():
    def seen(block, seed):
        return play(TrajectoryMemory(SPEC, 4, seed, 9, 1.5, 3), 200, block)

    assert seen(1, 7) == seen(4, 7) == seen(200, 7)
    assert seen(4, 7) != seen(4, 8)


def test_arrays_that_were_handed_out_are_not_written_again():
    memory = TrajectoryMemory(SPEC, 4, 0, 4, 1.0)
    memory.insert(unrolls(*range(7)))
    first = memory.sample()
    rest = memory.finish()
    kept = map_nest(np.copy, (first, rest))
    for array in leaves(memory.sample() if memory.can_sample else ()):
        array[...] = 0
    memory.insert(unrolls(*range(7, 30)))
    drain(memory)
    map_nest(np.testing.assert_array_equal, (first, rest), kept)
    for array in leaves(first):
        array[...] = 1
    memory.insert(unrolls(*range(30, 50)))
    drain(memory)  # every leaf of what is replayed is right


@pytest.mark.parametrize("number", [0, 2, 3, 11, 40])
@pytest.mark.parametrize(("proportion", "max_reuse"), [(0.0, None), (1.5, 2), (2, 5)])
def test_restored_it_goes_on_bit_for_bit(number, proportion, max_reuse):
    def memory(seed):
        return TrajectoryMemory(SPEC, 3, seed, 8, proportion, max_reuse)

    original = memory(5)
    original.insert(unrolls(*range(number)))
    if original.can_sample:
        original.sample()
    state = original.state()
    assert not any(array.dtype == object for array in state.values())
    kept = {name: array.copy() for name, array in state.items()}
    restored = memory(6)
    restored.insert(unrolls(*range(1_000, 1_020)))  # all of it goes
    restored.restore(state)
    for name in ("fresh", "replayed", "out", "pending", "available", "stored"):
        assert getattr(original, name) == getattr(restored, name)
    again = [play(each, 100, 3, number) for each in (original, restored)]
    assert again[0] == again[1] and len(again[0]) >= 100
    later = original.state(), restored.state()
    for name, array in later[0].items():
        np.testing.assert_array_equal(array, later[1][name])
    for name, array in state.items():
        np.testing.assert_array_equal(array, kept[name])


def test_a_state_of_other_settings_is_refused():
    state = TrajectoryMemory(SPEC, 3, 0, 8, 1.5, 2).state()
    for settings in ((4, 0, 8, 1.5, 2), (3, 0, 9, 1.5, 2), (3, 0, 8, 1, 2), (3, 0)):
        with pytest.raises(ValueError, match=r"\[3.0, 8.0, 1.5, 2.0\]"):
            TrajectoryMemory(SPEC, *settings).restore(state)
    other = SPEC._replace(core_state=())
    with pytest.raises(ValueError, match="another spec"):
        TrajectoryMemory(other, 3, 0, 8, 1.5, 2).restore(state)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size 0"),
        ({"replay_capacity": -3}, "capacity -3"),
        ({"replay_proportion": -0.5}, "-0.5"),
        ({"replay_proportion": float("nan")}, "nan"),
        ({"replay_proportion": float("inf")}, "inf"),
        ({"max_reuse": 0}, "max_reuse .* 0"),
        ({"replay_proportion": 0.1}, "batch_size 4 .* got 0"),
        ({"replay_proportion": 0.1, "replay_capacity": 3}, "batch_size 4 .* got 3"),
        (
            {"replay_proportion": 2.5, "replay_capacity": 4, "max_reuse": 2},
            "2.5 .* max_reuse 2",
        ),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        TrajectoryMemory(SPEC, **{"batch_size": 4, "seed": 0, **settings})


def test_what_does_not_fit_is_refused_and_nothing_taken_in():
    memory = TrajectoryMemory(SPEC, 1, 0, 4, 1.0)
    good = unrolls(1, 2)
    observation = {**good.observation, "plain": np.zeros((2, T), np.float32)}
    for bad, message in (
        (good._replace(reward=np.zeros((2, T))), "reward.*float64"),
        (good._replace(observation=observation), "observation/plain"),
        (good._replace(observation=good.observation["plain"]), "image"),
        (good._replace(first_is_last=np.bool_(True)), "first_is_last"),
        (good._replace(version=good.version[:1]), r"\[2, .*, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            memory.insert(bad)
    assert memory.fresh == memory.pending == memory.stored == 0
    with pytest.raises(ValueError, match="0 unrolls of 1"):
        memory.sample()


def test_predicts_the_bytes_of_the_stored_ones():
    record = unrolls(*range(12))
    expected = sum(array.nbytes for array in leaves(record))
    assert TrajectoryMemory.predicted_bytes(SPEC, 12) == expected
