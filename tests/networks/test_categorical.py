"""Categorical distributions against SciPy, element by element."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
from graph_runs import differences, run

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec
from distrl.networks.categorical import MAX_LOGITS, CategoricalFactory

B = 5
SPECS = {
    "scalar": ArraySpec((), "int64", 0, 3),
    "numbered": ArraySpec((), "int32", -2, 1),
    "equal": ArraySpec((2, 2), "int8", 0, 1),
    "unequal": ArraySpec((3,), "int64", (0, 5, -1), (1, 8, -1)),
    "widest": ArraySpec((), "int8", -128, 127),
}


def counts_of(spec):
    size = int(np.prod(spec.shape))
    low, high = (np.broadcast_to(b, size) for b in (spec.minimum, spec.maximum))
    return low.astype(int), (high.astype(int) - low + 1)


def example(spec, seed=0, scale=2.0):
    """Logits [B, P], other logits, and actions."""
    rng = np.random.default_rng(seed)
    low, counts = counts_of(spec)
    logits = scale * rng.normal(size=(2, B, counts.sum()))
    action = low + rng.integers(0, counts, (B, len(counts)))
    action = action.reshape(B, *spec.shape).astype(spec.dtype)
    return *logits.astype(np.float32), action


def log_probs_of(spec, logits):
    """A list with [B, V] an element."""
    _, counts = counts_of(spec)
    parts = np.split(np.asarray(logits, np.float64), np.cumsum(counts)[:-1], axis=1)
    return [scipy.special.log_softmax(part, axis=1) for part in parts]


def log_prob_oracle(spec, logits, action):
    low, _ = counts_of(spec)
    index = action.reshape(len(action), -1).astype(int) - low
    parts = enumerate(log_probs_of(spec, logits))
    return sum(p[np.arange(len(p)), index[:, e]] for e, p in parts)


def entropy_oracle(spec, logits):
    probs = [np.exp(p) for p in log_probs_of(spec, logits)]
    return sum(scipy.stats.entropy(p, axis=1) for p in probs)


def kl_oracle(spec, logits, others):
    pairs = zip(log_probs_of(spec, logits), log_probs_of(spec, others), strict=True)
    return sum(scipy.stats.entropy(np.exp(p), np.exp(q), axis=1) for p, q in pairs)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_log_prob_entropy_and_kl(spec):
    logits, others, action = example(spec)
    factory = CategoricalFactory(spec)

    def build(logits, others, action):
        p, q = factory(logits), factory(others)
        return p.log_prob(action), p.entropy(), p.kl(q), p.kl(p)

    log_prob, entropy, kl, none = run(build, (logits, others, action))
    assert log_prob.dtype == np.float32 and log_prob.shape == (B,)
    expected = log_prob_oracle(spec, logits, action)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        entropy, entropy_oracle(spec, logits), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        kl, kl_oracle(spec, logits, others), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(none, 0, atol=1e-6)


@pytest.mark.parametrize("spec", [SPECS["numbered"], SPECS["unequal"]])
@pytest.mark.parametrize("what", ["log_prob", "entropy", "kl"])
def test_gradients_are_finite_differences(spec, what):
    logits, others, action = example(spec)
    factory = CategoricalFactory(spec)

    def build(logits, others, action):
        p = factory(logits)
        arguments = {"log_prob": [action], "entropy": [], "kl": [factory(others)]}
        return getattr(p, what)(*arguments[what])

    oracle = {
        "log_prob": lambda x: log_prob_oracle(spec, x, action).sum(),
        "entropy": lambda x: entropy_oracle(spec, x).sum(),
        "kl": lambda x: kl_oracle(spec, x, others).sum(),
    }[what]
    _, gradients = run(build, (logits, others, action), lambda built: built)
    assert set(gradients) == ({0, 1} if what == "kl" else {0})
    np.testing.assert_allclose(gradients[0], differences(oracle, logits), atol=1e-3)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_actions_keep_to_spec_and_seed(spec):
    logits, _, _ = example(spec)
    factory = CategoricalFactory(spec)
    seeds = np.array([[1, 2], [1, 2], [1, 3], [2, 2]], np.int32)
    build = lambda x, s: [factory(x).sample(s[i]) for i in range(4)]  # noqa: E731
    logits = np.repeat(logits, 20, axis=0)
    samples = run(build, (logits, seeds))
    low, counts = counts_of(spec)
    for sample in samples:
        assert sample.dtype == spec.dtype and sample.shape == (20 * B, *spec.shape)
        index = sample.reshape(20 * B, -1).astype(int) - low
        assert (index >= 0).all() and (index < counts).all()
    np.testing.assert_array_equal(samples[0], samples[1])
    assert (samples[0] != samples[2]).any() and (samples[0] != samples[3]).any()


@pytest.mark.parametrize("spec", [SPECS["numbered"], SPECS["unequal"]])
def test_samples_come_as_often_as_they_should(spec):
    logits, _, _ = example(spec, scale=1.0)
    factory, number = CategoricalFactory(spec), 20_000
    rows = np.repeat(logits[:1], number, axis=0)
    sample = run(lambda x: factory(x).sample([3, 4]), (rows,))
    low, _ = counts_of(spec)
    index = sample.reshape(number, -1).astype(int) - low
    for element, expected in enumerate(log_probs_of(spec, logits)):
        seen = np.bincount(index[:, element], minlength=expected.shape[1]) / number
        np.testing.assert_allclose(seen, np.exp(expected[0]), atol=0.02)
    assert abs(np.corrcoef(index[1:, 0], index[:-1, 0])[0, 1]) < 0.03


def test_elements_are_sampled_independently():
    factory = CategoricalFactory(ArraySpec((2,), "int64", 0, 1))
    sample = run(lambda x: factory(x).sample([0, 0]), (np.zeros((4000, 4), "f"),))
    assert abs(np.corrcoef(sample.T)[0, 1]) < 0.06


def test_the_mode_is_the_first_of_the_best():
    spec = SPECS["unequal"]
    logits = np.array([[0, 1, 3, 9, 9, 0, -5], [2, 2, 0, 0, 0, 0.5, 7]], np.float32)
    mode = run(lambda x: CategoricalFactory(spec)(x).mode(), (logits,))
    np.testing.assert_array_equal(mode, [[1, 6, -1], [0, 8, -1]])


@pytest.mark.parametrize("size", [80.0, 1e4, 1e20])
def test_large_logits_stay_finite(size):
    spec = SPECS["unequal"]
    factory = CategoricalFactory(spec)
    logits = size * np.array([[1, -1, 1, 0, -1, -1, 1]], np.float32)
    action = np.array([[0, 5, -1]])

    def build(x, y, action):
        p, q = factory(x), factory(y)
        return p.log_prob(action), p.entropy(), p.kl(q), p.sample([0, 1])

    built, gradients = run(
        build, (logits, -logits, action), lambda b: b[0] + b[1] + b[2]
    )
    assert built[0] == 0 and abs(built[1]) < 1e-6
    assert np.isfinite(built[2]) and (gradients[0] != gradients[0]).sum() == 0
    np.testing.assert_array_equal(built[3], action)


def test_an_empty_batch():
    factory = CategoricalFactory(SPECS["unequal"])
    logits, _, action = example(SPECS["unequal"])
    build = lambda x, a: (factory(x).log_prob(a), factory(x).sample([0, 0]))  # noqa: E731
    log_prob, sample = run(build, (logits[:0], action[:0]))
    assert log_prob.shape == (0,) and sample.shape == (0, 3)


def test_trajectories_keep_what_the_environment_takes():
    factory = CategoricalFactory(SPECS["numbered"])
    assert factory.raw_spec == SPECS["numbered"] and factory.num_parameters == 4
    action = np.array([-2, 1], np.int32)
    np.testing.assert_array_equal(factory.to_environment(action), action)
    again = run(factory.to_environment_graph, (action,))
    assert again.dtype == np.int32 and (again == action).all()


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec((), "int64"),
        ArraySpec((), "int64", 0),
        ArraySpec((2,), "int64", 0, (3, -1)),
        ArraySpec((), "int64", 0, MAX_LOGITS),
        ArraySpec((84, 84), "uint8", 0, 255),
        ArraySpec((0,), "int64", 0, 1),
        ArraySpec((3,), "int64", 0, (1, 2)),
    ],
)
def test_other_integers_are_refused_by_name(spec):
    with pytest.raises(ConfigError, match="int"):
        CategoricalFactory(spec)


@pytest.mark.parametrize("shape", [(B,), (B, 1), (B, 2), (B, 3, 1)])
def test_an_action_of_another_shape_is_refused(shape):
    factory = CategoricalFactory(SPECS["unequal"])
    logits = example(SPECS["unequal"])[0]
    with pytest.raises(ValueError, match=r"expected an action"):
        run(lambda x, a: factory(x).log_prob(a), (logits, np.zeros(shape, int)))
