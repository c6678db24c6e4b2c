"""Scaled rewards against streams that are walked one by one."""

import numpy as np
import pytest
from rounds import mask_of, random_round

from distrl.learners.reward_scaling import RewardScaling


def scaled(scaling, rows):
    ends = rows.terminated | rows.truncated
    return scaling.scale(rows.reward, ends, mask_of(rows), rows.stream)


def returns(rounds, discount):
    """Every discounted sum, stream by stream, of rounds with the same streams."""
    found = []
    for n in range(rounds[0].reward.shape[1]):
        total = 0.0
        for rows in rounds:
            for t, is_step in enumerate(mask_of(rows)[:, n]):
                total = rows.reward[t, n] + discount * total if is_step else 0.0
                found += [total] if is_step else []
                if rows.terminated[t, n] or rows.truncated[t, n]:
                    total = 0.0
    return found


def test_rewards_are_divided_by_the_spread_of_all_returns_so_far():
    scaling = RewardScaling(0.9, clip=100.0)
    rounds = [random_round(seed) for seed in range(3)]
    for number, rows in enumerate(rounds):
        got = scaled(scaling, rows)
        expected = rows.reward / np.std(returns(rounds[: number + 1], 0.9))
        expected[~mask_of(rows)] = 0.0
        np.testing.assert_allclose(got, expected, rtol=1e-5)
        assert got.dtype == np.float32


def test_the_order_of_the_streams_does_not_matter():
    one, other = RewardScaling(0.9), RewardScaling(0.9)
    order = np.array([2, 0, 3, 1])
    scaled(one, random_round(0))
    scaled(other, random_round(0))
    rows = random_round(1)
    turned = rows._replace(
        **{
            name: getattr(rows, name)[..., order]
            for name in ("reward", "terminated", "truncated", "first_is_last", "stream")
        }
    )
    np.testing.assert_allclose(
        scaled(other, turned), scaled(one, rows)[:, order], rtol=1e-6
    )


def test_a_stream_that_was_away_starts_anew():
    """Here streams 0 to 3 are away while 100 to 103 are there."""
    here = np.zeros(4, bool)
    rounds = [
        random_round(seed, end_rate=0.0, first=first)._replace(first_is_last=here)
        for seed, first in enumerate((0, 100, 0))
    ]
    scaling, fresh = RewardScaling(0.9), RewardScaling(0.9)
    for rows in rounds:
        scaled(scaling, rows)
    scaled(fresh, rounds[-1])
    for name in ("stream", "sum"):
        np.testing.assert_array_equal(scaling.state()[name], fresh.state()[name])


def test_scaled_rewards_are_clipped():
    rows = random_round()
    rows.reward[0] *= 1000
    assert abs(scaled(RewardScaling(0.0, clip=0.5), rows)).max() == 0.5


def test_a_state_goes_on_as_the_first():
    one, other = RewardScaling(0.9), RewardScaling(0.9)
    scaled(one, random_round(0))
    other.restore(one.state())
    for seed in (1, 2):
        rows = random_round(seed)
        np.testing.assert_array_equal(scaled(one, rows), scaled(other, rows))


def test_nothing_is_taken_in_of_what_is_refused():
    scaling, rows = RewardScaling(0.9), random_round()
    scaled(scaling, rows)
    before = scaling.state()
    bad = rows.reward.copy()
    bad[mask_of(rows)] = np.inf
    with pytest.raises(ValueError, match="inf"):
        scaled(scaling, rows._replace(reward=bad))
    with pytest.raises(ValueError, match=r"twice: \[1, 1, 2, 3\]"):
        scaled(scaling, rows._replace(stream=np.array([1, 1, 2, 3])))
    for name, array in scaling.state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("arguments", [(0.9, 0.0), (1.5, 10.0), (-0.1, 1.0)])
def test_bad_numbers_are_refused(arguments):
    with pytest.raises(ValueError, match=str(arguments[0])):
        RewardScaling(*arguments)
