"""Which examples come next."""

from __future__ import annotations

import pickle
from itertools import islice

import pytest

from distrl.worlds.example_index import ExampleIndex


def taken(index, most=1000):
    """What it hands out, so many at most."""
    return [number for number in islice(iter(index.take, None), most)]


def test_in_order():
    index = ExampleIndex(4)
    assert taken(index) == [0, 1, 2, 3]
    assert (index.take(), index.taken, index.available) == (None, 4, False)


def test_available_before_the_last():
    index = ExampleIndex(2)
    seen = []
    while index.available:
        seen.append(index.take())
    assert seen == [0, 1]


def test_a_random_order_has_each_once():
    orders = [taken(ExampleIndex(20, "random", seed=seed)) for seed in (1, 1, 2)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != list(range(20))


def test_epochs_have_orders_of_their_own():
    numbers = taken(ExampleIndex(20, "random", repeats=True), 60)
    epochs = [numbers[n : n + 20] for n in (0, 20, 40)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_repeats():
    index = ExampleIndex(3, repeats=True)
    assert taken(index, 7) == [0, 1, 2, 0, 1, 2, 0]
    assert index.available


def test_an_unknown_number():
    index = ExampleIndex(None)
    assert taken(index, 5) == [0, 1, 2, 3, 4]
    assert index.available and index.taken == 5


@pytest.mark.parametrize("order", ["ordered", "random"])
def test_a_reset_begins_anew(order):
    index = ExampleIndex(9, order, seed=3)
    first = taken(index)
    index.reset()
    assert index.taken == 0
    taken(index, 4)
    index.reset()
    assert taken(index) == first


@pytest.mark.parametrize("size", [0, -1])
def test_there_must_be_examples(size):
    with pytest.raises(ValueError, match=f"got {size}"):
        ExampleIndex(size)


def test_orders_are_known():
    with pytest.raises(ValueError, match="got 'sorted'"):
        ExampleIndex(3, "sorted")


def test_settings_make_another():
    index = ExampleIndex(7, "random", seed=5)
    settings = pickle.loads(pickle.dumps(index.settings))
    assert taken(ExampleIndex(*settings)) == taken(index)


# Lent ones.


def test_only_what_was_lent():
    index = ExampleIndex(10)
    index.give_back()
    assert not index.available and index.take() is None
    index.lend([7, 3])
    index.lend([5])
    assert index.available
    assert taken(index) == [7, 3, 5]
    assert not index.available


def test_what_was_lent_is_given_back():
    index = ExampleIndex(10)
    index.lend([4, 5, 6])
    index.finish(index.take())
    index.take()
    assert index.give_back() == ([6], [4])
    assert index.give_back() == ([], [])
    assert index.take() is None


def test_a_reset_forgets_what_was_lent():
    index = ExampleIndex(10)
    index.lend([4, 5])
    index.finish(index.take())
    index.reset()
    assert (index.available, index.taken) == (False, 0)
    assert index.give_back() == ([], [])


def test_nobody_remembers_what_nobody_asks_for():
    index = ExampleIndex(3, repeats=True)
    for number in taken(index, 10):
        index.finish(number)
    assert index.give_back() == ([], [])
