"""Random streams: different everywhere, the same each time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from distrl.core.seeds import JOBS, EnvironmentSeeds, integer_seed, seed_sequence

PLACES = list(itertools.product(JOBS, range(3), range(3), range(3)))


def state(seed, *place):
    return tuple(seed_sequence(seed, *place).generate_state(4))


def test_every_place_and_every_root_seed_has_its_own_stream():
    states = {state(seed, *place) for seed in (0, 1) for place in PLACES}
    assert len(states) == 2 * len(PLACES)


def test_streams_repeat():
    assert [state(3, *p) for p in PLACES] == [state(3, *p) for p in PLACES]


def test_the_defaults_are_the_first_start_of_the_task_itself():
    assert state(5, "actor", 2) == state(5, "actor", 2, 0, 0)


def test_integer_seeds_are_31_bits_and_differ():
    numbers = [integer_seed(seed_sequence(0, *place)) for place in PLACES]
    assert len(set(numbers)) == len(PLACES)
    assert all(type(n) is int and 0 <= n < 2**31 for n in numbers)
    assert max(numbers) >= 2**30  # no bit is wasted


def test_two_streams_are_uncorrelated():
    a, b = (
        np.random.default_rng(seed_sequence(0, "actor", 0, slot)).standard_normal(4000)
        for slot in (1, 2)
    )
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.08


def test_an_unknown_job_is_named():
    with pytest.raises(ValueError, match="chief"):
        seed_sequence(0, "chief", 0)


@pytest.mark.parametrize(
    "place", [(-1, "ps", 0), (0, "ps", -1), (0, "ps", 0, -1), (0, "ps", 0, 0, -1)]
)
def test_negative_numbers_are_refused(place):
    with pytest.raises(ValueError, match="-1"):
        seed_sequence(*place)


def numbers(seed, job="actor"):
    """Every seed of 4 tasks, 64 slots each, in 3 lives."""
    return [
        EnvironmentSeeds(seed, job, task).of(slot, restart)
        for task, slot, restart in itertools.product(range(4), range(64), range(3))
    ]


def test_environments_have_pairwise_different_seeds():
    every = [numbers(seed, job) for seed in (0, 1) for job in ("actor", "evaluation")]
    assert all(len(set(one)) == 4 * 64 * 3 for one in every)
    for one, other in itertools.combinations(every, 2):
        assert not set(one) & set(other)


def test_environment_seeds_repeat_and_are_31_bits():
    assert numbers(7) == numbers(7)
    assert all(type(n) is int and 0 <= n < 2**31 for n in numbers(7))


def test_environment_seeds_are_those_of_their_place():
    """Slot e has place e + 1: 0 is the task's own stream."""
    seeds = EnvironmentSeeds(3, "actor", 2)
    for slot, restart in ((0, 0), (5, 0), (5, 2)):
        place = seed_sequence(3, "actor", 2, slot + 1, restart)
        assert seeds.of(slot, restart) == integer_seed(place)
    assert seeds.of(0) != integer_seed(seed_sequence(3, "actor", 2))


def test_a_restarted_task_has_other_environments():
    lives = [
        EnvironmentSeeds(seed, "actor", 1, restart=restart).of(slot, again)
        for seed in (0, 1)
        for restart in range(4)
        for slot in range(16)
        for again in range(3)
    ]
    assert len(set(lives)) == len(lives)
    first, second = (EnvironmentSeeds(0, "actor", 1, restart=n) for n in range(2))
    assert first == EnvironmentSeeds(0, "actor", 1)
    assert second.behind(4).of(1) == second.of(5) != first.of(5)


def test_a_slot_cannot_reach_into_the_next_life_of_its_task():
    with pytest.raises(ValueError, match="65536"):
        EnvironmentSeeds(0, "actor", 0).of(0, 1 << 16)


def test_a_group_behind_others_continues_their_numbers():
    seeds = EnvironmentSeeds(0, "actor", 1)
    whole = [seeds.of(slot) for slot in range(10)]
    assert [seeds.behind(4).of(slot) for slot in range(6)] == whole[4:]
    assert seeds.behind(4).behind(3).of(1, 2) == seeds.of(8, 2)
    assert seeds.behind(0) == seeds and seeds.first == 0  # a copy


@pytest.mark.parametrize("slot, restart", [(-1, 0), (-2, 0), (0, -1)])
def test_environment_seeds_refuse_negative_numbers(slot, restart):
    with pytest.raises(ValueError, match=str(min(slot, restart))):
        EnvironmentSeeds(0, "actor", 0).of(slot, restart)
