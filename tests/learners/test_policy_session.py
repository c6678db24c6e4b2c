"""The session of PPO: steps, statistics, state that can be taken up again."""

import numpy as np
import pytest

from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.learners.policy_session import PPOSession
from distrl.models.ppo import PPOBatch, PPOModel

SPEC = EnvironmentSpec(
    {"x": ArraySpec((2,), "float64"), "n": ArraySpec((), "int64", 0, 3)},
    ArraySpec((1,), "float32", -1.0, 1.0),
)
B = 8


def observation(seed, rows=B):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(500.0, 7.0, (rows, 2)), "n": rng.integers(0, 4, rows)}


def batch(seed):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(4, B)).astype(np.float32)
    raw = rng.normal(size=(B, 1)).astype(np.float32)
    return PPOBatch(observation(seed), raw, *numbers, mask=np.ones(B, np.float32))


@pytest.fixture(scope="module")
def model():
    return PPOModel(normalise_observations=True)


@pytest.fixture(scope="module")
def made(model):
    sessions = PPOSession(model, SPEC, seed=0), PPOSession(model, SPEC, seed=1)
    yield sessions, sessions[0].state()
    for session in sessions:
        session.close()


@pytest.fixture
def session(made):
    made[0][0].restore(made[1], 0)
    return made[0][0]


@pytest.fixture
def twin(made):
    made[0][1].restore(made[1], 0)
    return made[0][1]


def statistics(session):
    return {
        name.rsplit("/", 1)[-1]: array
        for name, array in session.named(session.parameters()).items()
        if name.startswith("normaliser/")
    }


def test_a_step_trains_and_measures(session):
    before = session.parameters()
    metrics = session.train(batch(0), 0.01, 0.2)
    assert session.learner_steps == 1
    assert {"loss", "entropy", "approximate_kl", "gradient_norm"} <= set(metrics)
    assert all(isinstance(value, float) for value in metrics.values())
    pairs = zip(before, session.parameters(), strict=True)
    assert any((a != b).any() for a, b in pairs)


def test_statistics_are_those_of_all_rows(session):
    parts = [observation(seed, rows) for seed, rows in enumerate((3, 50, 1))]
    for part in parts:
        session.update_normaliser(part)
    x = np.concatenate([part["x"] for part in parts])
    got = statistics(session)
    np.testing.assert_allclose(got["mean"], x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(got["variance"], x.var(0), rtol=1e-9)
    assert got["count"] == 54


def test_training_leaves_the_statistics(session):
    session.update_normaliser(observation(0))
    before = statistics(session)
    session.train(batch(0), 0.1, 0.2)
    for name, array in statistics(session).items():
        np.testing.assert_array_equal(array, before[name])


def test_what_is_published_acts_with_the_statistics(model, session):
    """A shift of the observations that the statistics follow changes no value."""
    sampler = PolicySampler(model, SPEC)
    rows, shift = observation(0, 100), 1e6
    values = []
    for offset in (0.0, shift):
        moved = {**rows, "x": rows["x"] + offset}
        start = session.state()
        session.update_normaliser(moved)
        sampler.load(session.parameters())
        values.append(sampler.value(moved))
        session.restore(start, 0)
    sampler.close()
    np.testing.assert_allclose(values[0], values[1], rtol=1e-4, atol=1e-5)
    assert values[0].std() > 0.01


def test_observations_that_are_not_finite_change_nothing(session):
    session.update_normaliser(observation(0))
    before = statistics(session)
    bad = observation(1)
    bad["x"][3, 1] = np.nan
    with pytest.raises(ValueError, match="observation, leaf 'x': .*nan"):
        session.update_normaliser(bad)
    for name, array in statistics(session).items():
        np.testing.assert_array_equal(array, before[name])


def test_a_restored_session_goes_on_as_the_first(session, twin):
    session.update_normaliser(observation(0))
    session.train(batch(0), 0.1, 0.2)
    twin.restore(session.state(), session.learner_steps)
    for each in (session, twin):
        each.train(batch(1), 0.1, 0.2)
        each.update_normaliser(observation(1))
    assert session.learner_steps == twin.learner_steps == 2
    for name, array in session.state().items():
        np.testing.assert_array_equal(array, twin.state()[name])


def test_a_state_without_a_variable_is_refused(session):
    state = session.state()
    name = next(iter(state))
    del state[name]
    with pytest.raises(ValueError, match=name):
        session.restore(state, 0)


def test_a_batch_that_does_not_fit_is_refused(session):
    with pytest.raises(ValueError, match="batch_advantage.*float32.*float64"):
        session.train(batch(0)._replace(advantage=np.zeros(B)), 0.1, 0.2)


def test_without_a_normaliser_there_are_no_statistics():
    one = PPOSession(PPOModel(), SPEC, seed=0)
    one.update_normaliser(observation(0))
    assert statistics(one) == {}
    one.close()
