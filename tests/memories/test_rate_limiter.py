import numpy as np
import pytest

from distrl.memories.rate_limiter import RateLimiter


def test_never_locks_and_keeps_the_ratio():
    random = np.random.default_rng(0)
    for _ in range(100):
        ratio = float(random.choice([0.25, 1.0, 3.7, 8.0]))
        block, bundle = (int(n) for n in random.integers(1, 300, 2))
        least = int(random.integers(1, 1000))
        band = ratio * block + bundle
        limiter = RateLimiter(ratio, least, band / 2 * random.choice([1.0, 1.5]))
        limiter.check(block, bundle)
        goal = least + 50 * (block + round(bundle / ratio))
        while limiter.inserted < goal:
            rows = int(random.integers(1, block + 1))
            if random.random() < 0.5 and limiter.can_insert(rows):
                limiter.insert(rows)
            elif limiter.can_sample(bundle):
                limiter.sample(bundle)
            assert limiter.can_insert(block) or limiter.can_sample(bundle)
        assert limiter.ratio == pytest.approx(ratio, rel=0.08)


def test_a_band_that_is_too_small_can_lock():
    limiter = RateLimiter(2.0, 1, tolerance=4.0)
    limiter.insert(1)
    limiter.insert(1)
    assert not limiter.can_insert(10) and not limiter.can_sample(10)
    with pytest.raises(ValueError, match=r"4\.0.*30\.0"):
        limiter.check(10, 10)
    RateLimiter(2.0, 1, tolerance=15.0).check(10, 10)


def test_minimum_comes_first():
    limiter = RateLimiter(1.0, 10, tolerance=2.0)
    assert not limiter.can_sample(1)
    limiter.insert(9)
    assert not limiter.can_sample(1) and limiter.can_insert(100)
    limiter.insert(1)
    assert limiter.can_sample(2) and not limiter.can_sample(3)
    assert limiter.can_insert(2) and not limiter.can_insert(3)
    assert limiter.ratio == 0
    limiter.insert(2)
    limiter.sample(4)
    assert limiter.ratio == 2.0


def test_no_limit():
    limiter = RateLimiter(None, 3, tolerance=0.0)
    limiter.check(10**9, 10**9)
    assert limiter.can_insert(10**9) and not limiter.can_sample(1)
    limiter.insert(3)
    assert limiter.can_insert(10**9) and limiter.can_sample(10**9)


def test_open_lets_inserts_through_but_not_samples():
    limiter = RateLimiter(1.0, 1, tolerance=1.0)
    limiter.insert(1)
    assert not limiter.can_insert(100)
    limiter.open()
    assert limiter.can_insert(100) and not limiter.can_sample(100)


def test_state_goes_round():
    limiter = RateLimiter(1.0, 5, tolerance=3.0)
    limiter.insert(7)
    limiter.sample(2)
    other = RateLimiter(1.0, 5, tolerance=3.0)
    other.restore(limiter.state())
    assert (other.inserted, other.sampled) == (7, 2) and other.ratio == limiter.ratio


def test_refuses_bad_numbers():
    for wrong in ((0, 1, 1), (-2, 1, 1), (float("nan"), 1, 1), (1, 0, 1), (1, 1, -3)):
        value = next(str(n) for n in wrong if not n == 1)
        with pytest.raises(ValueError, match=value):
            RateLimiter(*wrong)
    for count in (RateLimiter(1, 1, 1).insert, RateLimiter(1, 1, 1).sample):
        with pytest.raises(ValueError, match="-1"):
            count(-1)
