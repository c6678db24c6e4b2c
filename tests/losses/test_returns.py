"""Advantages and targets against episodes that are walked one by one."""

import numpy as np
import pytest

from distrl.losses.returns import (
    generalized_advantages,
    step_mask,
)

T, B = 23, 6


def example(seed=0, end_rate=0.25):
    """Streams with ends of both kinds (also both at once), in the NEXT_STEP layout.

    What must not matter, the step of masked rows and the value of what terminated, is
    NaN, or a flag that would cut.
    """
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(T, B)).astype(np.float32)
    values = rng.normal(size=(T + 1, B)).astype(np.float32)
    terminated, truncated = rng.random((2, T, B)) < end_rate / 2
    terminated[-1, :2] = truncated[-1, 2:4] = True
    first_is_last = rng.random(B) < 0.5
    mask = np.ones((T, B), bool)
    for b in range(B):
        last = first_is_last[b]
        for t in range(T):
            mask[t, b] = not last
            last = mask[t, b] and (terminated[t, b] or truncated[t, b])
    rewards[~mask] = np.nan
    dead = np.zeros((T + 1, B), bool)
    dead[1:] = terminated & mask
    values[dead] = np.nan
    return rewards, values, terminated, truncated, mask, first_is_last


def episodes(terminated, truncated, mask):
    """(stream, first row, row behind the last step) of each piece of an episode."""
    for b in range(mask.shape[1]):
        first = None
        for t in range(len(mask)):
            if not mask[t, b]:
                continue
            first = t if first is None else first
            if terminated[t, b] or truncated[t, b] or t == len(mask) - 1:
                yield b, first, t + 1
                first = None


def oracle(rewards, values, terminated, truncated, mask, discount, lambda_):
    """GAE as its definition says: sums over n-step advantages, episode by episode."""
    advantages = np.zeros((T, B))
    for b, first, end in episodes(terminated, truncated, mask):
        v = values[first : end + 1, b].astype(np.float64)
        if terminated[end - 1, b]:
            v[-1] = 0.0
        r = rewards[first:end, b]
        for t in range(end - first):
            advantages[first + t, b] = sum(
                (discount * lambda_) ** (k - t) * (r[k] + discount * v[k + 1] - v[k])
                for k in range(t, end - first)
            )
    return advantages


def td_lambda_oracle(rewards, values, terminated, truncated, mask, discount, lambda_):
    """(1 − λ) Σ λ^(n−1) G^(n) + λ^(N−1) G^(N), from n-step returns."""
    targets = np.zeros((T, B))
    for b, first, end in episodes(terminated, truncated, mask):
        for t in range(first, end):
            returns, total = [], 0.0
            for n, k in enumerate(range(t, end)):
                total += discount**n * rewards[k, b]
                last = k + 1 == end and terminated[k, b]
                bootstrap = 0.0 if last else values[k + 1, b]
                returns.append(total + discount ** (n + 1) * bootstrap)
            weights = [(1 - lambda_) * lambda_**n for n in range(len(returns))]
            weights[-1] = lambda_ ** (len(returns) - 1)
            targets[t, b] = np.dot(weights, returns)
    return targets


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("discount", "lambda_"), [(0.97, 0.5), (1.0, 1.0), (0.9, 0.0), (0.0, 0.7)]
)
def test_advantages_and_targets(seed, discount, lambda_):
    *arguments, _ = example(seed)
    result = generalized_advantages(*arguments, discount, lambda_)
    mask, values = arguments[-1], arguments[1][:-1]
    expected = oracle(*arguments, discount, lambda_)
    np.testing.assert_allclose(result.advantages, expected, rtol=1e-5, atol=1e-5)
    targets = np.where(mask, expected + values, 0)
    np.testing.assert_allclose(result.value_targets, targets, rtol=1e-5, atol=1e-5)
    assert {array.dtype.name for array in result} == {"float32"}


def test_the_example_has_all_kinds_of_end():
    _, _, terminated, truncated, mask, _ = example()
    ends = [terminated & mask, truncated & mask, terminated & truncated & mask]
    assert all(kind.any() for kind in ends) and (~mask[0]).any() and mask[0].any()
    assert ends[0][-1].any() and ends[1][-1].any()
    assert ((terminated | truncated) & ~mask).any()


@pytest.mark.parametrize("lambda_", [0.0, 0.3, 1.0])
def test_value_targets_are_a_mean_of_n_step_returns(lambda_):
    *arguments, _ = example(5)
    targets = generalized_advantages(*arguments, 0.9, lambda_).value_targets
    expected = td_lambda_oracle(*arguments, 0.9, lambda_)
    np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-5)


def test_masked_rows_and_dead_values_touch_nothing():
    rewards, values, terminated, truncated, mask, _ = example()
    before = generalized_advantages(
        rewards, values, terminated, truncated, mask, 0.9, 0.8
    )
    rewards, terminated, truncated = (
        np.where(mask, kept, other)
        for kept, other in ((rewards, 1e9), (terminated, True), (truncated, False))
    )
    values = np.nan_to_num(values, nan=-1e9)
    after = generalized_advantages(
        rewards, values, terminated, truncated, mask, 0.9, 0.8
    )
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
        assert (one[~mask] == 0).all() and np.isfinite(one).all()


def column(*numbers):
    return np.array(numbers)[:, None]


def flags(*rows, length):
    return np.isin(np.arange(length), rows)[:, None]


def test_seed_rls_values_terminated():
    """V 1, 2, 3, 4, r .1, .2, .3; the second step ends its episode (SR-8).

    A row of its own holds the last observation; its value must not matter.
    """
    none = flags(length=4)
    result = generalized_advantages(
        column(0.1, 0.2, 55.0, 0.3),
        column(1.0, 2.0, 77.0, 3.0, 4.0),
        flags(1, length=4),
        none,
        ~flags(2, length=4),
        0.97,
        0.5,
    )
    expected = column(0.167, -1.8, 0.0, 1.18)
    np.testing.assert_allclose(result.advantages, expected, atol=1e-6)


def test_seed_rls_values_truncated():
    """Abandoned at the second step (SR-8): the first has it as its last observation."""
    none = flags(length=3)
    result = generalized_advantages(
        column(0.1, 0.2, 0.3),
        column(1.0, 2.0, 3.0, 4.0),
        none,
        flags(0, length=3),
        ~flags(1, length=3),
        0.97,
        0.5,
    )
    expected = column(1.04, 0.0, 1.18)
    np.testing.assert_allclose(result.advantages, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("terminated", "expected"),
    [(True, [0.167, -1.8, 1.18]), (False, [1.57835, 1.11, 1.18])],
)
def test_ends_cut_also_where_no_row_is_masked(terminated, expected):
    """SR-8's own layout: the next episode follows at once, and belongs to another."""
    end, none = flags(1, length=3), flags(length=3)
    result = generalized_advantages(
        column(0.1, 0.2, 0.3),
        column(1.0, 2.0, 3.0, 4.0),
        end if terminated else none,
        none if terminated else end,
        ~none,
        0.97,
        0.5,
    )
    np.testing.assert_allclose(result.advantages[:, 0], expected, atol=1e-6)


def on_policy(rewards, discount, lambda_):
    """Targets of one unroll of four steps without ends, values 1 to 5."""
    none = flags(length=4)
    values = column(1.0, 2.0, 3.0, 4.0, 5.0)
    return generalized_advantages(
        rewards, values, none, none, ~none, discount, lambda_
    ).value_targets[:, 0]


def test_seed_rls_corner_cases():
    rewards = column(0.1, 0.2, 0.3, 0.4)
    np.testing.assert_allclose(on_policy(0 * rewards, 1.0, 1.0), [5, 5, 5, 5])
    np.testing.assert_allclose(on_policy(rewards, 0.0, 1.0), rewards[:, 0], rtol=1e-6)
    one_step = rewards[:, 0] + 0.9 * np.array([2, 3, 4, 5])
    np.testing.assert_allclose(on_policy(rewards, 0.9, 0.0), one_step, rtol=1e-6)


def test_lambda_one_is_the_n_step_return_to_the_end():
    """SR-8's eleven values, with n without limit."""
    values = np.arange(1.0, 12.0)
    ends = {1, 3, 8, 9}  # SEED RL counts from 1; every end terminates
    total, expected = values[10], []
    for t in reversed(range(10)):
        total = 0.1 * values[t] + 0.99 * (0.0 if t in ends else total)
        expected.insert(0, total)
    # A row more behind each end; the unroll's end is one as well.
    rows = [t for t in range(10) for _ in range(2 if t in ends else 1)]
    real = np.array([True] + [a != b for a, b in zip(rows, rows[1:], strict=False)])
    terminated = real & np.isin(rows, list(ends))
    result = generalized_advantages(
        0.1 * values[rows][:, None],
        np.append(values[rows], values[10])[:, None],
        terminated[:, None],
        np.zeros((len(rows), 1), bool),
        real[:, None],
        0.99,
        1.0,
    )
    np.testing.assert_allclose(result.value_targets[real, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(expected[2:4], [0.696, 0.4])  # as SR-8 has them
    np.testing.assert_allclose(expected[6:], [2.37409, 1.691, 0.9, 1.0])


@pytest.mark.parametrize("seed", range(3))
def test_the_mask_is_where_steps_were_taken(seed):
    _, _, terminated, truncated, mask, first_is_last = example(seed)
    got = step_mask(terminated, truncated, first_is_last)
    assert got.dtype == bool
    np.testing.assert_array_equal(got, mask)


def test_an_unroll_cut_in_two_has_the_same_mask():
    _, _, terminated, truncated, mask, first_is_last = example(1)
    head = step_mask(terminated[:9], truncated[:9], first_is_last)
    ended = head[-1] & (terminated[8] | truncated[8])
    tail = step_mask(terminated[9:], truncated[9:], ended)
    np.testing.assert_array_equal(np.concatenate([head, tail]), mask)


def test_no_rows():
    none = np.zeros((0, 2), bool)
    result = generalized_advantages(
        np.zeros((0, 2)), np.ones((1, 2)), none, none, none, 0.9, 0.9
    )
    assert result.advantages.shape == (0, 2)


@pytest.mark.parametrize("index", range(1, 5))
def test_a_wrong_shape_is_named(index):
    *arguments, _ = example()
    name = ["rewards", "values", "terminated", "truncated", "mask"][index]
    arguments[index] = arguments[index][:-1]
    with pytest.raises(ValueError, match=f"{name}: expected"):
        generalized_advantages(*arguments, 0.9, 0.9)


def test_other_wrong_shapes():
    *arguments, _ = example()
    flat = [array[:, 0] for array in arguments]
    with pytest.raises(ValueError, match=r"expected \[T, B\]"):
        generalized_advantages(*flat, 0.9, 0.9)
    with pytest.raises(ValueError, match="first_is_last"):
        step_mask(arguments[2], arguments[3], np.zeros(B + 1, bool))


@pytest.mark.parametrize("number", [-0.1, 1.1, float("nan")])
def test_a_share_outside_its_bounds_is_named(number):
    *arguments, _ = example()
    with pytest.raises(ValueError, match=f"discount .*{number}"):
        generalized_advantages(*arguments, number, 0.9)
    with pytest.raises(ValueError, match=f"lambda_ .*{number}"):
        generalized_advantages(*arguments, 0.9, number)
