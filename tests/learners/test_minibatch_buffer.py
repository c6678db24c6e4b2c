"""The order in which a minibatch buffer serves and releases."""

from __future__ import annotations

import itertools

import pytest

from distrl.learners.minibatch_buffer import MinibatchBuffer


def served(count: int, **settings: int) -> str:
    """Letters as they come, * where one is released."""
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    buffer = MinibatchBuffer(lambda: next(letters), **settings)
    got = [buffer.get() for _ in range(count)]
    return " ".join(item + "*" * released for item, released in got)


@pytest.mark.parametrize(
    ("size", "num_passes", "expected"),
    [
        (1, 1, "A* B* C* D*"),
        (1, 3, "A* B B* C C C* D D D*"),
        (2, 3, "A* B C B* C D C* D E D* E F E*"),
        (3, 2, "A* B C D B* C* D* E F G E* F* G*"),
        (4, 4, "A* B C D E B* C D E F C* D E F G D* E*"),
        (2, 1, "A* B* C* D* E*"),
    ],
)
def test_order_and_releases(size, num_passes, expected):
    found = served(len(expected.split()), size=size, num_passes=num_passes)
    assert found == expected


@pytest.mark.parametrize(
    ("initial_passes", "expected"),
    [(3, "A A A* B B B* C C C*"), (2, "A A* B B B* C C C*")],
)
def test_initial_passes_shorten_the_ramp(initial_passes, expected):
    found = served(len(expected.split()), num_passes=3, initial_passes=initial_passes)
    assert found == expected


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("num_passes", [1, 2, 7])
def test_every_item_is_released_once_after_its_passes(size, num_passes):
    items = itertools.count()
    buffer = MinibatchBuffer(lambda: next(items), size, num_passes, num_passes)
    passes: dict[int, int] = {}
    gone = set()
    for _ in range(20 * size * num_passes):
        item, released = buffer.get()
        assert item not in gone and len(passes.keys() - gone) <= size
        passes[item] = passes.get(item, 0) + 1
        if released:
            assert passes[item] == num_passes
            gone.add(item)
    assert len(gone) == 20 * size


def test_an_error_of_the_source_changes_nothing():
    found = iter(["A", "B"])
    broken = [False]

    def get():
        if broken[0]:
            raise TimeoutError("nothing there")
        return next(found)

    buffer = MinibatchBuffer(get, num_passes=2, initial_passes=2)
    assert buffer.get() == ("A", False)
    broken[0] = True
    assert buffer.get() == ("A", True)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            buffer.get()
    broken[0] = False
    assert [buffer.get(), buffer.get()] == [("B", False), ("B", True)]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"size": 0}, "minibatch_buffer_size .* got 0"),
        ({"num_passes": 0}, "num_passes .* got 0"),
        ({"initial_passes": 0}, r"initial_passes .* got 0"),
        ({"num_passes": 2, "initial_passes": 3}, r"initial_passes .*= 2\], got 3"),
    ],
)
def test_impossible_numbers_are_named(settings, named):
    with pytest.raises(ValueError, match=named):
        MinibatchBuffer(lambda: None, **settings)
