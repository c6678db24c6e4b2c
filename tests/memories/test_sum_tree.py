import numpy as np
import pytest

from distrl.memories.sum_tree import SumTree, level_sizes


def slow_find(values, mass):
    """The first place whose running sum exceeds the mass."""
    total = 0.0
    for place, value in enumerate(values):
        total += value
        if mass < total:
            return place
    return max(place for place, value in enumerate(values) if value > 0)


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 6, 7, 8, 12, 13, 100])
@pytest.mark.parametrize("num_top", [1, 2, 3, 2048])
def test_equals_a_list(capacity, num_top):
    random = np.random.default_rng(capacity)
    tree, values = SumTree(capacity, num_top), np.zeros(capacity)
    for _ in range(20):
        count = random.integers(1, 2 * capacity + 1)
        indices = random.integers(0, capacity, count)
        new = random.integers(0, 4, count).astype(float)  # exact sums, some zeros
        tree.set(indices, new)
        for index, value in zip(indices, new, strict=True):
            values[index] = value
        first = random.integers(0, capacity)
        run = np.arange(first, capacity)
        tree.set(run, run % 3 + 1.0)
        values[run] = run % 3 + 1.0
        np.testing.assert_array_equal(tree.get(np.arange(capacity)), values)
        assert tree.total == values.sum()
        masses = np.append(random.random(50) * tree.total, [0, tree.total])
        expected = [slow_find(values, mass) for mass in masses]
        assert tree.find(masses).tolist() == expected


@pytest.mark.parametrize("capacity", [1, 5, 6, 7, 8, 12, 1000])
def test_the_middle_of_each_bin_finds_its_place(capacity):
    tree = SumTree(capacity, num_top=3)
    tree.set(np.arange(capacity), np.ones(capacity))
    places = np.arange(capacity)
    np.testing.assert_array_equal(tree.find(places + 0.5), places)
    np.testing.assert_array_equal(tree.find(places.astype(float)), places)


def test_an_empty_place_is_never_found():
    random = np.random.default_rng(0)
    for trial in range(200):
        capacity = int(random.integers(1, 70))
        tree = SumTree(capacity, num_top=int(random.integers(1, 9)))
        values = random.random(capacity) * 10.0 ** random.integers(-12, 12, capacity)
        values[random.random(capacity) < 0.6] = 0
        values[random.integers(capacity)] = 0.1
        tree.set(np.arange(capacity), values)
        edges = np.cumsum(values)
        masses = np.concatenate(
            [edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf), [0]]
        )
        found = tree.find(np.append(masses, [tree.total, tree.total * 2]))
        assert (values[found] > 0).all(), trial


@pytest.mark.parametrize("num_top", [1, 2])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("0x1.09bf3be8039dfp-2", "0x1.106e58ea092d4p-1"),
        ("0x1.3be9755049efbp-2", "0x1.5f1d7d5733c14p-1"),
        ("0x1.9a26a00988060p-8", "0x1.056c43f5c0710p-2"),
    ],
)
def test_a_mass_that_rounds_up_to_the_whole_branch(num_top, left, right):
    """Here (total, next below) - left rounds to all of right, whose end is empty."""
    x, y = float.fromhex(left), float.fromhex(right)
    for first, second in ((x, y), (y, x)):
        tree = SumTree(4, num_top)
        tree.set(np.arange(4), np.array([first, 0, second, 0]))
        assert tree.find(np.array([tree.total])).tolist() == [2]


def test_small_values_survive_large_ones():
    tree = SumTree(8, num_top=1)
    tree.set(np.arange(8), np.full(8, 0.1))
    for _ in range(1000):
        tree.set(np.array([3]), np.array([1e16]))
        tree.set(np.array([3]), np.array([0.1]))
    assert tree.total == pytest.approx(0.8, abs=1e-12)


def test_known_tree():
    tree = SumTree(4, num_top=1)
    tree.set(np.array([2, 3]), np.array([1.0, 3.0]))
    assert tree.total == 4
    masses = np.array([0, 0.5, 0.99, 1.01, 3, 4])
    assert tree.find(masses).tolist() == [2, 2, 2, 3, 3, 3]


def test_last_of_a_repeated_index_counts():
    tree = SumTree(6, num_top=2)
    tree.set(np.array([4, 4, 1, 4]), np.array([1.0, 2.0, 3.0, 5.0]))
    assert tree.get(np.array([4, 1])).tolist() == [5, 3]
    assert tree.total == 8


def test_refuses_and_keeps():
    tree = SumTree(4)
    tree.set(np.array([1]), np.array([2.0]))
    for value in (np.nan, np.inf, -1.0):
        with pytest.raises(ValueError, match=str(value)):
            tree.set(np.array([1, 2]), np.array([1.0, value]))
    for index in (-1, 4):
        with pytest.raises(ValueError, match=str(index)):
            tree.set(np.array([index]), np.array([1.0]))
        with pytest.raises(ValueError, match=str(index)):
            tree.get(np.array([index]))
    with pytest.raises(ValueError, match="shape|values for"):
        tree.set(np.array([1, 2]), np.array([1.0]))
    with pytest.raises(ValueError, match="-0.5"):
        tree.find(np.array([-0.5]))
    with pytest.raises(ValueError, match="nan"):
        tree.find(np.array([np.nan]))
    assert tree.total == 2 and tree.find(np.array([1.0])).tolist() == [1]
    tree.set(np.array([], int), np.array([]))
    with pytest.raises(ValueError, match="all values are 0"):
        SumTree(3).find(np.array([0.0]))
    with pytest.raises(ValueError, match="0"):
        SumTree(0)


def test_levels_halve_down_to_the_top():
    assert level_sizes(1) == [1]
    assert level_sizes(5, 2) == [8, 4, 2]
    assert level_sizes(10**6, 2048)[-1] == 1954
