import io

import numpy as np
import pytest
from episode_data import Episodes, assert_same, episode_spec, expect, play

from distrl.core.records import Experience, replay_batch_spec
from distrl.core.specs import ArraySpec, EnvironmentSpec, validate
from distrl.memories.prioritized import PrioritizedMemory
from distrl.memories.uniform import UniformMemory

KINDS = (UniformMemory, PrioritizedMemory)
FLAT = EnvironmentSpec(ArraySpec((), "float32"), ArraySpec((), "int64"))


class Line:
    """One endless episode; row i has action i."""

    def __init__(self):
        self.time = 0

    def rows(self, priorities) -> Experience:
        priorities = np.asarray(priorities, np.float32)
        count = len(priorities)
        times = np.arange(self.time, self.time + count)
        first = not self.time
        shown = np.arange(0 if first else self.time + 1, self.time + count + 1)
        self.time += count
        return Experience(
            blocks=np.array([[shown[0], len(shown), 1, count]]),
            frames=shown.astype(np.float32),
            stream=np.zeros(count, np.int32),
            episode_start=np.zeros(count, np.int64),
            time_tm1=times,
            time_t=times + 1,
            action=times,
            reward=np.ones(count, np.float32),
            discount=np.ones(count, np.float32),
            priority=priorities,
        )


def filled(priorities, capacity=None, **options) -> PrioritizedMemory:
    memory = PrioritizedMemory(FLAT, capacity or len(priorities), 0, **options)
    memory.insert("line", Line().rows(priorities))
    return memory


def frequencies(memory, draws=20_000, batches=20) -> np.ndarray:
    ids = memory.sample(batches, draws // batches).id
    return np.bincount(ids, minlength=memory.inserted) / draws


def test_priorities_one_to_four():
    seen = frequencies(filled([1, 2, 3, 4], priority_exponent=1.0))
    np.testing.assert_allclose(seen, [0.1, 0.2, 0.3, 0.4], atol=0.015)


def test_one_row_at_a_time_is_unbiased():
    """Batches of 1 have one stratum: plain proportional sampling."""
    seen = frequencies(filled([1, 2, 3, 4], priority_exponent=1.0), 20_000, 20_000)
    np.testing.assert_allclose(seen, [0.1, 0.2, 0.3, 0.4], atol=0.015)


@pytest.mark.parametrize(
    ("ratio", "low", "high"),
    [(1, 400, 800), (2, 600, 850), (4, 750, 950), (9, 850, 1100)],
)
def test_ratios_of_two(ratio, low, high):
    memory = filled([1, ratio], priority_exponent=1.0)
    assert low < memory.sample(100, 10).id.sum() < high


def test_a_dominant_row():
    memory = filled([0.01, 1, 0.01, 0.01, 0.01], priority_exponent=1.0)
    assert 970 < memory.sample(1000, 1).id.sum() < 1100


def test_a_small_exponent_is_nearly_uniform():
    memory = filled([0.01, 1, 2, 30, 400], priority_exponent=0.01)
    counts = frequencies(memory, 1000, 1000) * 1000
    assert (counts > 100).all() and (counts < 300).all()


def test_a_small_memory_shows_everything():
    for kind in KINDS:
        for size in (1, 2, 3):
            memory = kind(FLAT, 10, 1)
            memory.insert("a", Line().rows([1] * size))
            assert set(memory.sample(500, 1).id) == set(range(size))
            assert memory.sample(1, 64).id.shape == (64,)


@pytest.mark.parametrize("capacity", [1, 5, 6, 7, 8, 12, 1000])
def test_the_newest_and_the_oldest_are_drawn_however_full(capacity):
    for kind in KINDS:
        memory, line = kind(FLAT, capacity, 2), Line()
        for count in (1, max(1, capacity - 1), capacity, 1, 1):
            memory.insert("a", line.rows([1] * count))
            live = np.arange(max(0, line.time - capacity), line.time)
            assert memory.size == len(live)
            drawn = memory.sample(1, 20 * capacity).id
            assert drawn.min() == live[0] and drawn.max() == live[-1]


def test_weights_undo_the_bias():
    """Mean of weight · f over draws is proportional to the plain mean of f."""
    exponent, priorities = 0.7, np.array([0.5, 1, 2, 8])
    memory = filled(
        priorities, priority_exponent=exponent, importance_sampling_exponent=1.0
    )
    batch = memory.sample(3, 4000)
    share = priorities**exponent / (priorities**exponent).sum()
    weights = 1 / (4 * share)
    expected = (weights / weights.max())[batch.id]
    np.testing.assert_allclose(batch.weight, expected, 1e-5)
    assert np.average(batch.id == 3, weights=batch.weight) == pytest.approx(0.25, 0.02)


def test_the_largest_weight_of_each_batch_is_one():
    memory = filled(np.random.default_rng(0).random(50) + 0.01)
    weights = memory.sample(6, 4).weight.reshape(6, 4)
    np.testing.assert_array_equal(weights.max(axis=1), 1)
    assert (weights > 0).all() and weights.dtype == np.float32
    memory.importance_sampling_exponent = 0.0
    np.testing.assert_array_equal(memory.sample(6, 4).weight, 1)
    np.testing.assert_array_equal(filled([3, 3, 3]).sample(2, 9).weight, 1)


def test_batches_are_stratified():
    memory = filled(np.ones(100))
    ids = memory.sample(5, 100).id.reshape(5, 100)
    np.testing.assert_array_equal(ids, np.tile(np.arange(100), (5, 1)))


def test_unknown_priorities_get_the_largest_so_far():
    memory, line = PrioritizedMemory(FLAT, 8, 0, priority_exponent=1.0), Line()
    memory.insert("a", line.rows([np.nan, np.nan]))
    np.testing.assert_allclose(frequencies(memory), [0.5, 0.5], atol=0.01)
    memory.insert("a", line.rows([0.25, np.nan]))  # now 1, 1, 0.25, 0.25
    np.testing.assert_allclose(frequencies(memory), [0.4, 0.4, 0.1, 0.1], atol=0.01)
    memory.update(np.array([0]), np.array([6.0], "f"))
    memory.insert("a", line.rows([np.nan, 3.0]))  # 6, 1, 0.25, 0.25, 6, 3
    expected = np.array([6, 1, 0.25, 0.25, 6, 3]) / 16.5
    np.testing.assert_allclose(frequencies(memory), expected, atol=0.01)


def test_updates_move_the_distribution():
    memory = filled([1, 1, 1, 1], priority_exponent=1.0)
    ids, new = np.array([2, 0, 2]), np.array([50, 3, 5], "f")
    assert memory.update(ids, new) == 0
    np.testing.assert_allclose(frequencies(memory), [0.3, 0.1, 0.5, 0.1], atol=0.015)


def test_stale_updates_are_counted_and_ignored():
    for kind in KINDS:
        memory, line = kind(FLAT, 4, 0), Line()
        memory.insert("a", line.rows([1] * 6))  # ids 2 to 5 are live
        ids = np.array([0, 1, 2, 5, 6, -1, 1000])
        assert memory.update(ids, np.full(7, 9.0)) == 5
        assert memory.stale_updates == 5
        assert memory.update(ids[:2], np.ones(2)) == 2
        assert memory.update(np.array([], int), np.array([], "f")) == 0
        assert memory.stale_updates == 7
    weights = {0: 1, 1: 1, 2: 9**0.6, 5: 9**0.6}
    expected = np.array([weights.get(i, 1.0) for i in range(2, 6)])
    seen = frequencies(memory)[2:]
    np.testing.assert_allclose(seen, expected / expected.sum(), atol=0.015)


def test_a_row_that_takes_over_a_slot_has_its_own_priority():
    memory, line = PrioritizedMemory(FLAT, 3, 0, priority_exponent=1.0), Line()
    memory.insert("a", line.rows([100, 100, 100]))
    memory.insert("a", line.rows([1, 1]))
    seen = frequencies(memory)
    np.testing.assert_allclose(seen[2:], [100 / 102, 1 / 102, 1 / 102], atol=0.01)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_bad_priorities_are_refused(kind, value):
    memory, line = kind(FLAT, 4, 0), Line()
    if not np.isnan(value):
        with pytest.raises(ValueError, match=str(value)):
            memory.insert("a", Line().rows([1, value]))
    assert memory.inserted == 0
    memory.insert("a", line.rows([1, 1]))
    with pytest.raises(ValueError, match=str(value)):
        memory.update(np.array([0, 1]), np.array([5.0, value]))
    np.testing.assert_allclose(frequencies(memory), [0.5, 0.5], atol=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_calls_are_refused(kind):
    memory = kind(FLAT, 4, 0)
    with pytest.raises(ValueError, match="empty"):
        memory.sample(1, 1)
    with pytest.raises(ValueError, match="0"):
        memory.sample(0, 3)
    with pytest.raises(ValueError, match=r"\(2,\).*\(1,\)"):
        memory.update(np.array([1]), np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="leaf"):
        memory.insert("a", Line().rows([1])._replace(frames=np.zeros((2, 3), "f")))
    with pytest.raises(ValueError, match="-2"):
        kind(FLAT, -2, 0)


def test_bad_exponents_are_refused():
    for options in (
        {"priority_exponent": -1.5},
        {"importance_sampling_exponent": -1.5},
    ):
        with pytest.raises(ValueError, match="-1.5"):
            PrioritizedMemory(FLAT, 4, 0, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_from_steps_to_batches(kind):
    """Through accumulators and memory, sampled rows are those of the raw episodes."""
    spec = episode_spec(3)
    producers = [Episodes(i, 2, 3, end=0.15) for i in range(3)]
    shipped = [play(episodes, 150, 3, 0.9, 6) for episodes in producers]
    expected = expect(producers, 3, 0.9)
    memory = kind(spec, 90, np.random.SeedSequence(4), frame_slack=60)
    random, rows, names = np.random.default_rng(0), 0, set()
    for turn in zip(*shipped, strict=True):
        for producer in random.permutation(3):
            rows += memory.insert(("actor", int(producer), 7), turn[producer])
            batch = memory.sample(3, 16)
            validate(replay_batch_spec(spec), batch, 1, "batch")
            assert len(batch.weight) == 48
            assert_same(batch.transition, expected)
            names.update(batch.transition.a_tm1["name"].tolist())
            assert memory.update(batch.id, random.random(48) + 0.1) == 0
    assert rows == memory.inserted == len(expected) and memory.orphans == 0
    assert memory.size <= 90 and len(names) > 0.8 * len(expected)


def test_evicted_rows_are_not_drawn():
    """Episodes of one step need two frames a row: rows go before the ring is full."""
    memory = PrioritizedMemory(episode_spec(3), 100, 0, frame_slack=30)
    episodes = Episodes(1, 2, 3, end=1.0)
    blocks = play(episodes, 300, 2, 0.9, 4)
    for block in blocks:
        memory.insert("a", block)
    assert 30 < memory.size < 80  # of 100
    batch = memory.sample(1, 600)
    assert_same(batch.transition, expect([episodes], 2, 0.9))
    assert len(set(batch.id.tolist())) == memory.size


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_memory_goes_on_as_before(kind):
    episodes = Episodes(1, 4, 3, end=0.1)
    blocks = play(episodes, 300, 3, 0.9, 10)
    memory = kind(episode_spec(3), 600, 5)
    half = len(blocks) - 5
    for block in blocks[:half]:
        memory.insert(("actor", 0, 1), block)
    assert memory.inserted > memory.capacity  # wrapped
    ids = memory.sample(4, 64).id
    memory.update(ids, np.random.default_rng(0).random(256) + 0.01)
    memory.update(np.array([0]), np.array([1.0]))
    file = io.BytesIO()
    np.savez(file, **memory.state())
    file.seek(0)
    other = kind(episode_spec(3), 600, 99)
    other.insert("something else", blocks[0])
    with np.load(file, allow_pickle=False) as state:
        other.restore(dict(state))
    for name in ("size", "inserted", "orphans", "stale_updates"):
        assert getattr(other, name) == getattr(memory, name)
    for block in [None, *blocks[half:]]:
        if block is not None:
            counts = [m.insert(("actor", 0, 1), block) for m in (memory, other)]
            assert counts[0] == counts[1] == len(block.reward)
        for _ in range(10):
            first, second = memory.sample(1, 32), other.sample(1, 32)
            np.testing.assert_array_equal(first.id, second.id)
            np.testing.assert_array_equal(first.weight, second.weight)
            for key in ("image", "plain"):
                np.testing.assert_array_equal(
                    first.transition.s_t[key], second.transition.s_t[key]
                )


def test_the_state_is_a_copy():
    memory, line = filled([1, 2, 3]), Line()
    line.time = 3
    state = memory.state()
    before = {key: value.copy() for key, value in state.items()}
    memory.insert("line", line.rows([7, 7]))
    memory.update(np.array([4]), np.array([9.0]))
    for key, value in before.items():
        np.testing.assert_array_equal(state[key], value)


def test_a_state_that_does_not_fit_is_refused():
    state = UniformMemory(FLAT, 4, 0).state()
    with pytest.raises(ValueError, match="UniformMemory"):
        PrioritizedMemory(FLAT, 4, 0).restore(state)
    with pytest.raises(ValueError, match="5.*4"):
        UniformMemory(FLAT, 5, 0).restore(state)
    with pytest.raises(ValueError, match="spec"):
        UniformMemory(episode_spec(3), 4, 0).restore(state)


def test_same_seed_same_batches():
    for kind in KINDS:
        ids = []
        for seed in (3, 3, np.random.SeedSequence(3), 4):
            memory = kind(FLAT, 50, seed)
            memory.insert("a", Line().rows(np.ones(50)))
            ids.append(
                memory.sample(1, 40).id.tolist() + memory.sample(9, 1).id.tolist()
            )
        assert ids[0] == ids[1] == ids[2] != ids[3]


def test_bytes_are_predicted():
    for kind in KINDS:
        memory = kind(FLAT, 777, 0)
        assert kind.predicted_bytes(FLAT, 777) == memory.num_bytes
        assert memory.bytes_per_transition == memory.num_bytes / 777
    image = ArraySpec((4, 84, 84), "uint8", num_stacked=4)
    spec = EnvironmentSpec(image, ArraySpec((), "int64"))
    assert PrioritizedMemory.predicted_bytes(spec, 10**6) < 8.4 * 2**30
