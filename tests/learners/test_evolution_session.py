"""The learner's side of evolution strategies: gradient, Adam, state."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.core import seeds
from distrl.core.errors import ConfigError
from distrl.core.returns_of_pairs import share_of_pairs
from distrl.core.running_moments import RunningMoments
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.learners.evolution_session import ESSettings, EvolutionSession
from distrl.learners.flat_adam import FlatAdam
from distrl.losses.evolution import antithetic_gradient, centred_ranks, noise_table
from distrl.models.es import ESModel

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 1))
SIZE = 3 * 4 + 4 + 4 * 2 + 2
SETTINGS = ESSettings(noise_std=0.2, weight_decay=0.01, noise_table_size=500)
PAIRS = 300  # more than one block of noise

pytestmark = pytest.mark.timeout(60)


def make(settings=SETTINGS, seed=3):
    return EvolutionSession(ESModel((4,)), SPEC, seed, settings)


def pairs(seed, returns=None):
    rng = np.random.default_rng(seed)
    moments = RunningMoments((3,))
    moments.update(rng.normal(40.0, 2.0, (10, 3)))
    if returns is None:
        returns = rng.normal(size=(PAIRS, 2))
    names = rng.integers(0, 500 - SIZE + 1, len(returns))
    length = np.ones((len(returns), 2), np.int64)
    return share_of_pairs(0, names, returns, length, [moments], 0.1)


def vector(session):
    return np.concatenate([a.ravel() for a in session.parameters()[3:]])


def test_a_step_is_adam_on_the_gradient_of_what_was_shipped():
    session, shipped = make(), pairs(0)
    before = vector(session)
    metrics = session.train(shipped)
    own = seeds.integer_seed(seeds.seed_sequence(3, "learner", 0, restart=1))
    table = noise_table(own, 500)
    noise = np.stack([table[name : name + SIZE] for name in shipped.name])
    gradient = antithetic_gradient(noise, centred_ranks(shipped.returns), 0.2)
    assert metrics["gradient_norm"] == pytest.approx(np.linalg.norm(gradient), rel=1e-4)
    expected = FlatAdam(SIZE, 0.01).step(gradient - 0.01 * before)
    np.testing.assert_allclose(vector(session) - before, expected, atol=1e-6)
    assert session.learner_steps == 1


def test_statistics_are_those_of_all_rounds():
    session = make()
    session.train(pairs(0))
    session.train(pairs(1))
    rows = np.concatenate(
        [np.random.default_rng(s).normal(40.0, 2.0, (10, 3)) for s in (0, 1)]
    )
    mean, variance, count = session.parameters()[:3]
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(variance, rows.var(0), rtol=1e-10)
    assert count == 20 and count.dtype == np.int64


def test_it_climbs_towards_what_is_worth_more():
    """Returns linear in the perturbation: the direction is known."""
    settings = ESSettings(weight_decay=0.0, noise_table_size=None)
    session, target = make(settings), np.ones(SIZE)
    start = vector(session)
    for round_ in range(5):
        names = np.arange(200) + 200 * round_
        slope = settings.perturbations(3, SIZE).rows(names) @ target
        shipped = pairs(0, np.stack([slope, -slope], 1))._replace(name=names)
        session.train(shipped)
    moved = vector(session) - start
    assert moved @ target > 0.9 * np.linalg.norm(moved) * np.linalg.norm(target)


def test_equal_returns_leave_nothing_but_decay():
    session = make(ESSettings(weight_decay=0.0, noise_table_size=500))
    before = vector(session)
    session.train(pairs(0, np.full((PAIRS, 2), 7.0)))
    np.testing.assert_array_equal(vector(session), before)


def test_a_restored_session_goes_on_as_if_nothing_had_been():
    session = make()
    session.train(pairs(0))
    state = session.state()
    session.train(pairs(1))
    other = make(seed=3)
    other.restore(state, 1)
    other.train(pairs(1))
    for a, b in zip(session.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert other.learner_steps == 2
    state.pop("adam/square")
    with pytest.raises(ValueError, match="square"):
        other.restore(state, 1)


def test_parameters_have_their_specs_and_depend_on_the_seed():
    session = make()
    for spec, array in zip(session.parameter_specs, session.parameters(), strict=True):
        assert spec.shape == array.shape and spec.dtype == array.dtype.name
    assert np.array_equal(vector(session), vector(make()))
    assert not np.array_equal(vector(session), vector(make(seed=4)))


def test_nan_among_the_returns_is_an_error():
    with pytest.raises(ValueError, match="NaN"):
        make().train(pairs(0, np.full((4, 2), np.nan)))


def test_a_table_smaller_than_the_network_is_refused():
    with pytest.raises(ConfigError, match=f"{SIZE - 1} numbers.*{SIZE} parameters"):
        make(ESSettings(noise_table_size=SIZE - 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pairs_per_round", 0),
        ("noise_std", 0.0),
        ("learning_rate", -1.0),
        ("weight_decay", -0.1),
        ("noise_table_size", 0),
        ("max_episode_steps", 0),
    ],
)
def test_a_setting_out_of_range_is_a_config_error_by_name(name, value):
    with pytest.raises(ConfigError, match=f"ESSettings.{name}.*{value}"):
        ESSettings(**{name: value})


def test_adam_is_tensorflows():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(5, 3)).astype(np.float32)
    own, at = FlatAdam(3, 0.1), np.zeros(3, np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        g = tf.placeholder(tf.float32, [3])
        x = tf.get_variable("x", initializer=np.zeros(3, np.float32))
        op = tf.train.AdamOptimizer(0.1).apply_gradients([(-g, x)])
        session.run(tf.global_variables_initializer())
        for gradient in gradients:
            session.run(op, {g: gradient})
            at = at + own.step(gradient)
            np.testing.assert_allclose(at, session.run(x), rtol=1e-4)


def test_adam_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"\(3,\).*\(4,\)"):
        FlatAdam(3, 0.1).step(np.zeros(4))
    with pytest.raises(ValueError, match=r"mean.*\(3,\).*\(4,\)"):
        FlatAdam(3, 0.1).restore(FlatAdam(4, 0.1).state())
