"""Noise on actions: its size, its memory, where it begins anew; what is decided."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.agents.apex_actor import make_behaviour
from distrl.agents.epsilon_greedy import EpsilonGreedy
from distrl.agents.noisy_policy import ActionNoise, NoisyPolicy
from distrl.agents.settings import Acting
from distrl.checkpoints.parameters import flatten_parameters
from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.models.ddpg import DDPGModel, NoisyActing
from distrl.models.dqn import DQNModel

SPEC = EnvironmentSpec(ArraySpec((2,), "float32"), ArraySpec((2,), "float32", -1, 1))
STDS = [0.1, 0.5, 2.0]
EVERY = slice(None)


def noise(stds=STDS, elements=2, correlation=0.0, seed=7):
    return ActionNoise(stds, elements, correlation, np.random.SeedSequence(seed))


def draws(source, number, began=None):
    return np.stack([source.draw(EVERY, began) for _ in range(number)])


@pytest.mark.parametrize("correlation", [0.0, 0.85])
def test_each_slot_has_noise_of_its_std_around_zero(correlation):
    x = draws(noise(correlation=correlation), 20000)
    assert x.dtype == np.float32 and x.shape == (20000, 3, 2)
    wide = np.sqrt((1 + correlation) / (1 - correlation) / 20000)  # of the mean
    for slot, std in enumerate(STDS):
        np.testing.assert_allclose(x[:, slot].std(axis=0), std, rtol=0.06)
        assert (np.abs(x[:, slot].mean(axis=0)) < 5 * wide * std).all()


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.85])
def test_the_autocorrelation_falls_geometrically(correlation):
    x = draws(noise([1.0], 1, correlation), 20000)[:, 0, 0]
    for lag in (1, 2, 5):
        got = np.mean(x[lag:] * x[:-lag]) / x.var()
        assert abs(got - correlation**lag) < 0.05


def test_slots_and_elements_are_independent_of_each_other():
    x = draws(noise([1.0] * 3, 2, 0.5), 20000).reshape(-1, 6)
    others = np.corrcoef(x.T) - np.eye(6)
    assert np.abs(others).max() < 0.05


def test_noise_begins_anew_where_an_episode_did_and_nowhere_else():
    number = 4000
    began = np.array([False, True])
    source = noise([1.0, 1.0], 1, correlation=0.95)
    before, after = [], []
    for _ in range(number):
        before.append(source.draw(EVERY, None)[:, 0])
        after.append(source.draw(EVERY, began)[:, 0])
    before, after = np.array(before), np.array(after)
    assert np.corrcoef(before[:, 0], after[:, 0])[0, 1] > 0.9
    assert abs(np.corrcoef(before[:, 1], after[:, 1])[0, 1]) < 0.06
    np.testing.assert_allclose(after[:, 1].std(), 1.0, rtol=0.06)


def test_a_group_of_slots_has_its_own_stds_and_leaves_the_others_alone():
    source, twin = noise(correlation=0.99), noise(correlation=0.99)
    first = source.draw(slice(0, 1), None)
    assert first.shape == (1, 2)
    rest = source.draw(slice(1, 3), None)
    assert rest.shape == (2, 2)
    # Nothing was forgotten: both are still where the twin's first noise is.
    whole = twin.draw(EVERY, None)
    stds = np.array(STDS)[:, None]
    assert (np.abs(np.concatenate([first, rest]) - whole) < stds).all()


def test_seeds_tell_actors_apart():
    one, same, other = (draws(noise(seed=seed), 5) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).all()


def test_what_was_drawn_is_not_written_again():
    source = noise(correlation=0.9)
    first = source.draw(EVERY, None)
    kept = first.copy()
    source.draw(EVERY, None)
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize(
    ("stds", "correlation", "words"),
    [([0.1, -0.2], 0.0, "-0.2"), ([0.1], 1.0, "1.0"), ([0.1], -0.1, "-0.1")],
)
def test_noise_that_cannot_be_is_refused(stds, correlation, words):
    with pytest.raises(ValueError, match=words):
        noise(stds, 1, correlation)


class PlainModel:
    """μ(s) = w · s; values are sums."""

    def build_acting(self, spec, observation_ph, noise_ph):
        w = tf.get_variable("w", [], use_resource=True)
        best = w * observation_ph
        taken = best + noise_ph
        total = tf.reduce_sum(taken, axis=1)
        return NoisyActing(taken, total, tf.reduce_sum(best, axis=1))


@pytest.fixture
def policy():
    seed = np.random.SeedSequence(3)
    policy = NoisyPolicy(PlainModel(), SPEC, [0.0, 1.0, 5.0], 0.0, seed)
    policy.load(4, flatten_parameters([np.array(2, np.float32)]))
    yield policy
    policy.close()


OBSERVATION = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_decisions_are_the_best_action_and_the_slots_noise(policy):
    assert policy.version == 4 and policy.exploration == {"noise_stds": [0.0, 1.0, 5.0]}
    moves = []
    for _ in range(500):
        action, taken, best = policy.decide(OBSERVATION)
        moves.append(action - 2 * OBSERVATION)
        np.testing.assert_allclose(taken, action.sum(axis=1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(best, 2 * OBSERVATION.sum(axis=1), rtol=1e-5)
    stds = np.std(moves, axis=(0, 2))
    assert stds[0] == 0.0
    np.testing.assert_allclose(stds[1:], [1.0, 5.0], rtol=0.1)
    some = policy.decide(OBSERVATION[:1], slice(0, 1)).action
    np.testing.assert_array_equal(some, 2 * OBSERVATION[:1])


def test_greedy_actions_have_no_noise_and_take_none_away(policy):
    for size in (0, 1, 3):
        got = policy.greedy(OBSERVATION[:size])
        np.testing.assert_array_equal(got, 2 * OBSERVATION[:size])


def test_parameters_are_exchanged_with_their_version(policy):
    policy.load(9, flatten_parameters([np.array(-1, np.float32)]))
    assert policy.version == 9
    np.testing.assert_array_equal(policy.greedy(OBSERVATION), -OBSERVATION)
    with pytest.raises(ValueError):
        policy.load(10, np.zeros(5, np.uint8))
    assert policy.version == 9


def test_the_behaviour_follows_from_the_model():
    seed, acting = np.random.SeedSequence(0), Acting(noise_max=0.6, noise_min=0.2)
    noisy = make_behaviour(DDPGModel(), SPEC, acting, range(1, 3), 3, seed)
    assert isinstance(noisy, NoisyPolicy)
    np.testing.assert_allclose(noisy.exploration["noise_stds"], [0.4, 0.2])
    noisy.close()
    discrete = SPEC._replace(action=ArraySpec((), "int64", 0, 1))
    greedy = make_behaviour(DQNModel(), discrete, acting, range(1, 3), 3, seed)
    assert isinstance(greedy, EpsilonGreedy)
    assert greedy.exploration == {"epsilons": acting.epsilons(1, 2, 3)}
    greedy.close()


def test_noise_of_the_slots_falls_evenly_over_all_actors():
    acting = Acting(noise_max=0.5, noise_min=0.1)
    stds = acting.noise_stds(0, 5, 5)
    np.testing.assert_allclose(stds, [0.5, 0.4, 0.3, 0.2, 0.1])
    assert acting.noise_stds(2, 2, 5) == stds[2:4]
    assert acting.noise_stds(5, 5, 5) == stds  # an actor beyond the planned number
    assert acting.noise_stds(0, 1, 1) == [0.5]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise_min": 0.5}, "noise_min.*0.5 and 0.4"),
        ({"noise_min": -0.1}, "-0.1"),
        ({"noise_correlation": 1.0}, "noise_correlation.*1.0"),
    ],
)
def test_settings_of_noise_that_cannot_be_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        Acting(**settings)
