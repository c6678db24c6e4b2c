"""Diagonal and squashed Gaussians against SciPy."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow.compat.v1 as tf
from graph_runs import differences, run

from distrl.core.specs import ArraySpec
from distrl.networks.gaussian import MAX_ABS_LOG_STD, GaussianFactory
from distrl.networks.squashed_gaussian import SquashedGaussianFactory

B = 4
SPEC = ArraySpec((2,), "float32", (-1.0, 0.0), (1.0, 6.0))
LOW, HIGH = np.array(SPEC.minimum), np.array(SPEC.maximum)
KINDS = [GaussianFactory, SquashedGaussianFactory]


def example(seed=0):
    """Mean and log std [B, 2], those of another, and raw actions; float32."""
    rng = np.random.default_rng(seed)
    mean, other_mean, x = rng.normal(size=(3, B, 2))
    log_std, other_log_std = rng.uniform(-1.5, 0.5, (2, B, 2))
    arrays = (mean, log_std, other_mean, other_log_std, x)
    return [array.astype(np.float32) for array in arrays]


def parameters(mean, log_std):
    return np.concatenate([mean, log_std], axis=-1)


def normal(mean, log_std):
    return scipy.stats.norm(np.float64(mean), np.exp(np.float64(log_std)))


def density(a, mean, log_std, low, high):
    """Of one squashed element, by the rule for a change of variables."""
    half = (high - low) / 2
    y = (a - (low + high) / 2) / half
    return normal(mean, log_std).pdf(np.arctanh(y)) / (half * (1 - y**2))


def squashed_log_prob(x, mean, log_std):
    a = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.tanh(np.float64(x))
    return np.log(density(a, mean, log_std, LOW, HIGH)).sum(axis=-1)


Z = np.linspace(-12, 12, 4001)  # where all oracles integrate


def expectation(values):
    """Of values [..., 4001] at the points Z of a standard normal."""
    return scipy.integrate.simpson(scipy.stats.norm.pdf(Z) * values, x=Z, axis=-1)


def squashed_entropy(mean, log_std, low, high):
    """E[−log p] of each element."""
    mean, log_std, half = (
        np.float64(array)[..., None] for array in (mean, log_std, (high - low) / 2)
    )
    x = mean + np.exp(log_std) * Z
    slope = np.log(half) + 2 * (np.log(2) - x - np.logaddexp(0, -2 * x))
    return expectation(log_std + slope - scipy.stats.norm.logpdf(Z))


def test_a_diagonal_gaussian():
    factory = GaussianFactory(SPEC, state_dependent_std=True)
    mean, log_std, other_mean, other_log_std, x = example()

    def build(p, q, x):
        p, q = factory(p), factory(q)
        return p.log_prob(x), p.entropy(), p.kl(q), p.kl(p), p.mode()

    p, q = parameters(mean, log_std), parameters(other_mean, other_log_std)
    log_prob, entropy, kl, none, mode = run(build, (p, q, x))
    oracle = normal(mean, log_std)
    np.testing.assert_allclose(log_prob, oracle.logpdf(x).sum(1), rtol=1e-5)
    np.testing.assert_allclose(entropy, oracle.entropy().sum(1), rtol=1e-5)
    np.testing.assert_allclose(kl, kl_oracle(p, q), rtol=1e-4)
    np.testing.assert_array_equal(none, np.zeros(B))
    np.testing.assert_array_equal(mode, mean)


def kl_oracle(p, q):
    """E[log p − log q], summed over the elements."""
    (mean, log_std), other = (np.split(np.float64(x)[..., None], 2, 1) for x in (p, q))
    x = mean + np.exp(log_std) * Z
    log_p, log_q = normal(mean, log_std).logpdf(x), normal(*other).logpdf(x)
    return expectation(log_p - log_q).sum(axis=1)


def test_kl_of_near_equals_does_not_drown_in_rounding():
    factory = GaussianFactory(SPEC, state_dependent_std=True)
    p = np.zeros((1, 4), np.float32)
    q = p + np.float32([0, 0, 1e-4, 0])
    kl = run(lambda p, q: factory(p).kl(factory(q)), (p, q))
    np.testing.assert_allclose(kl, 1e-8, rtol=0.01)  # the square of the change


def test_a_squashed_gaussian():
    factory = SquashedGaussianFactory(SPEC, state_dependent_std=True)
    mean, log_std, other_mean, other_log_std, x = example()

    def build(p, q, x):
        p, q = factory(p), factory(q)
        return p.log_prob(x), p.entropy(), p.kl(q), p.mode()

    p, q = parameters(mean, log_std), parameters(other_mean, other_log_std)
    log_prob, entropy, kl, mode = run(build, (p, q, x))
    np.testing.assert_allclose(log_prob, squashed_log_prob(x, mean, log_std), rtol=1e-4)
    np.testing.assert_allclose(kl, kl_oracle(p, q), rtol=1e-4)
    np.testing.assert_array_equal(mode, mean)
    expected = squashed_entropy(mean, log_std, LOW, HIGH).sum(axis=1)
    np.testing.assert_allclose(entropy, expected, rtol=1e-4, atol=1e-4)


def test_the_squashed_density_is_one_over_the_actions():
    """SciPy's integral of what the graph says about a grid of raw actions."""
    spec = ArraySpec((1,), "float32", -3.0, 5.0)
    factory = SquashedGaussianFactory(spec, state_dependent_std=True)
    x = np.linspace(-9, 9, 4001, dtype=np.float32)[:, None]
    p = np.repeat(np.float32([[0.7, -0.2]]), len(x), axis=0)
    log_prob, a = run(
        lambda p, x: (factory(p).log_prob(x), factory.to_environment_graph(x)), (p, x)
    )
    total = scipy.integrate.trapezoid(np.exp(np.float64(log_prob)), a[:, 0])
    assert total == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("std", "error"), [(0.01, 2e-5), (1.0, 2e-5), (3.0, 0.003), (20.0, 0.4)]
)
def test_the_squashed_entropy_is_as_exact_as_it_says(std, error):
    spec = ArraySpec((), "float32", -1.0, 1.0)
    factory = SquashedGaussianFactory(spec, state_dependent_std=True)
    mean = np.float32([0, 0.8, -4, 30])
    log_std = np.full(4, np.log(std), np.float32)
    p = np.stack([mean, log_std], axis=1)
    entropy = run(lambda p: factory(p).entropy(), (p,))
    expected = squashed_entropy(mean, log_std, np.array(-1.0), np.array(1.0))
    np.testing.assert_allclose(entropy, expected, atol=error, rtol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["log_prob", "entropy", "kl"])
def test_gradients_are_finite_differences(kind, what):
    factory = kind(SPEC, state_dependent_std=True)
    mean, log_std, other_mean, other_log_std, x = example()
    p, q = parameters(mean, log_std), parameters(other_mean, other_log_std)

    def build(p, q, x):
        arguments = {"log_prob": [x], "entropy": [], "kl": [factory(q)]}
        return getattr(factory(p), what)(*arguments[what])

    squash = kind is SquashedGaussianFactory

    def oracle(p):
        mean, log_std = np.split(p, 2, axis=1)
        if what == "kl":
            return kl_oracle(p, q).sum()
        if what == "log_prob":
            gaussian = normal(mean, log_std).logpdf(x).sum()
            return squashed_log_prob(x, mean, log_std).sum() if squash else gaussian
        if not squash:
            return normal(mean, log_std).entropy().sum()
        return squashed_entropy(mean, log_std, LOW, HIGH).sum()

    _, gradients = run(build, (p, q, x), lambda built: built)
    np.testing.assert_allclose(gradients[0], differences(oracle, p), atol=2e-3)
    assert (1 in gradients) == (what == "kl")


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_mean_std_and_a_seed(kind):
    factory = kind(SPEC, state_dependent_std=True)
    p = np.repeat(np.float32([[1.0, -2.0, 0.0, -1.0]]), 20_000, axis=0)
    build = lambda p: [factory(p).sample(s) for s in ([1, 2], [1, 2], [1, 3])]  # noqa: E731
    one, again, other = run(build, (p,))
    assert one.dtype == np.float32 and one.shape == (20_000, 2)
    np.testing.assert_allclose(one.mean(0), [1, -2], atol=0.03)
    np.testing.assert_allclose(one.std(0), np.exp([0, -1]), rtol=0.03)
    assert scipy.stats.kstest(one[:, 0] - 1, "norm").pvalue > 1e-3
    np.testing.assert_array_equal(one, again)
    assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) < 0.03
    assert abs(np.corrcoef(one.T)[0, 1]) < 0.03


def test_a_samples_gradient_reaches_mean_and_std():
    factory = GaussianFactory(SPEC, state_dependent_std=True)
    p = parameters(*example()[:2])
    build = lambda p: factory(p).sample([5, 6])  # noqa: E731
    sample, gradients = run(build, (p,), lambda s: s)
    np.testing.assert_allclose(gradients[0][:, :2], 1)
    np.testing.assert_allclose(gradients[0][:, 2:], sample - p[:, :2], rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_log_std_is_a_variable_unless_the_network_says_it(kind):
    factory = kind(SPEC, initial_log_std=-0.5)
    mean, _, _, _, x = example()
    assert factory.num_parameters == 2

    def build(mean, x):
        with tf.variable_scope("online", reuse=tf.AUTO_REUSE):
            value = factory(mean).log_prob(x)
            with_again = factory(mean).log_prob(x)
        assert [v.op.name for v in tf.trainable_variables()] == ["online/log_std"]
        (slope,) = tf.gradients(value, tf.trainable_variables())
        return value, with_again, slope

    log_std = np.full((B, 2), -0.5)
    oracle = normal(mean, log_std)
    shrink = oracle.logpdf(x).sum(1) - squashed_log_prob(x, mean, log_std)
    correction = shrink if kind is SquashedGaussianFactory else 0
    value, again, slope = run(build, (mean, x))
    expected = oracle.logpdf(x).sum(1) - correction
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    np.testing.assert_array_equal(value, again)
    z = (x - mean) / np.exp(-0.5)
    np.testing.assert_allclose(slope, (z**2 - 1).sum(0), rtol=1e-4)
    moved, _, _ = run(build, (mean, x), variables={"online/log_std": [0.3, 0.3]})
    assert (moved != value).all()


def test_a_log_std_of_the_network_starts_at_the_initial_one():
    factory = GaussianFactory(SPEC, state_dependent_std=True, initial_log_std=-1.0)
    entropy = run(lambda p: factory(p).entropy(), (np.zeros((1, 4), "f"),))
    np.testing.assert_allclose(entropy, 2 * normal(0, -1.0).entropy(), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_extremes_stay_finite(kind):
    """Tiny and huge spreads, saturated tanh: values and gradients."""
    factory = kind(ArraySpec((), "float32", -1.0, 1.0), state_dependent_std=True)
    log_std = np.repeat(np.float32([-30, -20, 15, 30]), 4)
    x = np.tile(np.float32([-100, 0, 1, 100]), 4)
    p = np.stack([np.full(16, 0.5, np.float32), log_std], axis=1)

    def build(p, q, x):
        p, q = factory(p), factory(q)
        return p.log_prob(x), p.entropy(), p.kl(q), q.kl(p), p.sample([1, 1])

    values, gradients = run(
        build, (p, p * 0 + 0.1, x), lambda v: v[0] + v[1] + v[2] + v[3]
    )
    assert all(np.isfinite(value).all() for value in values)
    assert np.isfinite(gradients[0]).all()
    assert (gradients[0][abs(log_std) > MAX_ABS_LOG_STD, 1] == 0).all()


def test_a_saturated_tanh_loses_nothing():
    """Where tanh is 1 in float32, log-probabilities still tell raw actions apart."""
    factory = SquashedGaussianFactory(
        ArraySpec((), "float32", -1.0, 1.0), state_dependent_std=True
    )
    x = np.float32([12.0, 40.0, -40.0])
    p = np.float32([[x, 0.0] for x in x])
    log_prob = run(lambda p, x: factory(p).log_prob(x), (p, x))
    expected = scipy.stats.norm.logpdf(0) + 2 * abs(np.float64(x)) - 2 * np.log(2)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(B,), (B, 1), (B, 3), (B, 2, 1)])
def test_an_action_of_another_shape_is_refused(kind, shape):
    factory = kind(SPEC)
    with pytest.raises(ValueError, match="expected an action"):
        run(
            lambda p, a: factory(p).log_prob(a),
            (np.zeros((B, 2), "f"), np.zeros(shape, "f")),
        )
