"""How often stored fragments come again, and which."""

from __future__ import annotations

import math

import numpy as np
import pytest

from distrl.learners.fragment_replay import FragmentReplay, num_draws


def make(slots=4, proportion=1.0, min_stored=1) -> FragmentReplay:
    return FragmentReplay(slots, proportion, min_stored, np.random.default_rng(0))


@pytest.mark.parametrize("proportion", [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.75, 10.0])
def test_the_mean_number_of_draws_is_the_proportion(proportion):
    generator = np.random.default_rng(1)
    numbers = [num_draws(proportion, generator) for _ in range(20_000)]
    assert set(numbers) <= {math.floor(proportion), math.ceil(proportion)}
    assert abs(np.mean(numbers) - proportion) <= (proportion % 1 > 0) * 0.02


def test_replay_begins_with_the_last_fragment_of_a_batch():
    replay = make(slots=4, proportion=3.0, min_stored=4)
    counts = []
    for number in range(6):
        replay.add({"id": np.array([number])})
        counts.append(len(list(replay.draw())))
    assert counts == [0, 0, 0, 3, 3, 3]


def test_the_newest_are_drawn_with_equal_chances():
    replay = make(slots=4, proportion=8000.0)
    for number in range(6):
        replay.add(np.array([number]))
    drawn = [int(fragment[0]) for fragment in replay.draw()]
    shares = np.bincount(drawn, minlength=6) / len(drawn)
    assert shares[:2].tolist() == [0, 0]
    np.testing.assert_allclose(shares[2:], 0.25, atol=0.03)


def test_what_is_stored_is_a_copy_that_stays():
    replay = make()
    fragment = {"a": np.array([1.0, 2.0])}
    replay.add(fragment)
    fragment["a"][:] = 0.0
    (drawn,) = replay.draw()
    assert drawn["a"].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        drawn["a"][0] = 5.0


def test_none_are_drawn_without_a_proportion():
    replay = make(slots=0, proportion=0.0)
    replay.add(np.zeros(1))
    assert list(replay.draw()) == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"slots": -1}, "replay_slots .* got -1"),
        ({"proportion": -0.5}, "replay_proportion .* got -0.5"),
        ({"proportion": math.inf}, "replay_proportion .* got inf"),
        ({"proportion": math.nan}, "replay_proportion .* got nan"),
        ({"slots": 3, "min_stored": 4}, "4 stored .* never .* 3 replay_slots"),
    ],
)
def test_a_replay_that_cannot_happen_is_refused(settings, named):
    with pytest.raises(ValueError, match=named):
        make(**settings)
