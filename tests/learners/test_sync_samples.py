"""Rounds become minibatches: which rows, in what order, with what numbers."""

from functools import partial

import numpy as np
import pytest
from rounds import SPEC, RecordingSession, mask_of, random_round

from distrl.core.schedules import linear
from distrl.learners.minibatches import shuffled_parts
from distrl.learners.policy_session import PPOSession
from distrl.learners.sync_samples import PPOSettings, SyncSamples
from distrl.losses.returns import generalized_advantages
from distrl.models.ppo import PPOModel
from distrl.networks.policy_value_network import orthogonal_mlp, policy_value_network


def train(rows, env_steps=0, kls=(), seed=0, **settings):
    session = RecordingSession(kls)
    defaults = {"num_epochs": 3, "minibatch_size": 16}
    samples = SyncSamples(session, PPOSettings(**{**defaults, **settings}), seed)
    return session, samples.train(rows, env_steps)


def numbers(batch):
    """Which row of the round each row is."""
    return batch.observation[:, 0].astype(int)


def test_each_step_is_trained_on_once_an_epoch_and_no_other_row():
    rows = random_round()
    session, result = train(rows)
    steps = np.flatnonzero(mask_of(rows))
    parts = max(1, len(steps) // 16)
    batches = session.batches()
    assert result.num_minibatches == len(batches) == 3 * parts
    assert result.num_rows == len(steps) < rows.reward.size
    orders = []
    for epoch in range(3):
        chosen = [numbers(b) for b in batches[epoch * parts : (epoch + 1) * parts]]
        orders.append(np.concatenate(chosen))
        np.testing.assert_array_equal(np.sort(orders[-1]), steps)
    assert (orders[0] != orders[1]).any() and (orders[1] != orders[2]).any()


@pytest.mark.parametrize(
    ("number", "size", "sizes"),
    [
        (0, 4, []),
        (3, 4, [3]),
        (4, 4, [4]),
        (7, 4, [7]),
        (8, 4, [4, 4]),
        (11, 4, [6, 5]),
        (10, 3, [4, 3, 3]),
    ],
)
def test_a_remainder_is_spread(number, size, sizes):
    indices = 5 + np.arange(number)
    parts = list(shuffled_parts(indices, size, np.random.default_rng(0)))
    assert [len(part) for part in parts] == sizes
    assert sorted(np.concatenate([*parts, []])) == indices.tolist()


def test_rows_keep_what_belongs_to_them():
    rows = random_round()
    session, _ = train(rows, advantage_normalisation=None, discount=0.9, lambda_=0.8)
    expected = generalized_advantages(
        *(rows.reward, rows.value, rows.terminated, rows.truncated, mask_of(rows)),
        *(0.9, 0.8),
    )
    for batch in session.batches():
        t, n = np.divmod(numbers(batch), 4)
        np.testing.assert_array_equal(batch.observation, rows.observation[t, n])
        np.testing.assert_array_equal(batch.raw_action, rows.raw_action[t, n])
        log_prob = rows.behaviour_log_prob[t, n]
        np.testing.assert_array_equal(batch.behaviour_log_prob, log_prob)
        np.testing.assert_array_equal(batch.old_value, rows.value[t, n])
        np.testing.assert_array_equal(batch.advantage, expected.advantages[t, n])
        np.testing.assert_array_equal(batch.value_target, expected.value_targets[t, n])
        assert (batch.mask == 1).all()


def test_advantages_are_normalised_by_minibatch_or_by_batch():
    rows = random_round()
    plain, batch, minibatch = (
        train(rows, advantage_normalisation=kind)[0].batches()[:4]
        for kind in (None, "batch", "minibatch")
    )
    everything = np.concatenate([each.advantage for each in plain])
    everything = everything[: mask_of(rows).sum()]
    for raw, whole, own in zip(plain, batch, minibatch, strict=True):
        np.testing.assert_array_equal(numbers(raw), numbers(own))
        expected = (raw.advantage - raw.advantage.mean()) / raw.advantage.std()
        np.testing.assert_allclose(own.advantage, expected, rtol=1e-3, atol=1e-5)
        shift = raw.advantage - everything.mean()
        np.testing.assert_allclose(
            whole.advantage, shift / everything.std(), rtol=1e-3, atol=1e-5
        )


def test_what_masked_rows_hold_does_not_matter():
    rows = random_round()
    masked = ~mask_of(rows)
    other = rows._replace(
        raw_action=np.where(masked, 1 - rows.raw_action, rows.raw_action),
        behaviour_log_prob=np.where(masked, np.nan, rows.behaviour_log_prob).astype(
            "f4"
        ),
        reward=np.where(masked, np.nan, rows.reward).astype("f4"),
        terminated=rows.terminated | masked,
    )
    for normalise in (False, True):
        first, second = (
            train(each, normalise_rewards=normalise)[0] for each in (rows, other)
        )
        assert_equal_batches(first, second)


def assert_equal_batches(one, other):
    for a, b in zip(one.batches(), other.batches(), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_the_statistics_take_in_the_steps_behind_the_last_update():
    rows = random_round()
    session, _ = train(rows)  # the session refuses to train afterwards
    (observation,) = session.observations
    np.testing.assert_array_equal(observation, rows.observation[:-1][mask_of(rows)])


@pytest.mark.parametrize(("kls", "number"), [([0, 0.3, 0.1], 2), ([0.1] * 9, 12)])
def test_too_much_divergence_ends_a_round(kls, number):
    rows = random_round(end_rate=0.0)._replace(first_is_last=np.zeros(4, bool))
    session, result = train(rows, kls=kls, max_kl=0.2, minibatch_size=20)
    assert result.num_minibatches == len(session.calls) == number
    assert result.num_rows == 80 and len(session.observations) == 1
    assert result.metrics["loss"] == np.mean(np.arange(1, number + 1))


def test_divergence_that_is_not_a_number_ends_a_round():
    _, result = train(random_round(), kls=[0.0, np.nan], max_kl=0.2)
    assert result.num_minibatches == 2


def test_schedules_are_read_at_the_env_steps():
    schedules = {"learning_rate": linear(1.0, 0.0, 100), "clip": linear(0.4, 0.2, 100)}
    session, result = train(random_round(), env_steps=25, **schedules)
    for _, learning_rate, clip in session.calls:
        assert (learning_rate, clip) == (0.75, pytest.approx(0.35))
    assert result.metrics["learning_rate"] == 0.75


def test_a_schedule_below_0_is_refused():
    with pytest.raises(ValueError, match="learning_rate at 20 env steps is -1"):
        train(random_round(), env_steps=20, learning_rate=linear(1.0, -1.0, 10))


def test_a_round_without_a_step_trains_nothing():
    rows = random_round(num_steps=1)._replace(first_is_last=np.ones(4, bool))
    session, result = train(rows, normalise_rewards=True)
    assert result == (0, 0, {}) and session.calls == []


def test_explained_variance():
    rows = random_round(end_rate=0.0)
    perfect = rows._replace(reward=rows.value[:-1] - 0.5 * rows.value[1:])
    _, result = train(perfect, discount=0.5)
    assert result.metrics["explained_variance"] == pytest.approx(1.0)
    target = perfect.value[:-1][mask_of(perfect)].mean()
    assert result.metrics["mean_value_target"] == pytest.approx(target, abs=1e-6)


def test_shuffles_are_functions_of_seed_and_round():
    rows = random_round()
    one, again, other = (train(rows, seed=seed)[0] for seed in (1, 1, 2))
    assert_equal_batches(one, again)
    assert (numbers(one.batches()[0]) != numbers(other.batches()[0])[: 16 + 3]).any()
    session = RecordingSession()
    samples = SyncSamples(session, PPOSettings(minibatch_size=16), 1)
    firsts = []
    for _ in range(2):
        session.calls, session.observations = [], []
        samples.train(rows, 0)
        firsts.append(numbers(session.batches()[0]))
    assert (firsts[0] != firsts[1]).any()


def real(seed=0):
    network = partial(
        policy_value_network, torso=partial(orthogonal_mlp, hidden_sizes=(8,))
    )
    model = PPOModel(network, normalise_observations=True, entropy_cost=0.01)
    return PPOSession(model, SPEC, seed)


@pytest.fixture(scope="module")
def made():
    sessions = real(), real()
    yield sessions, sessions[0].state()
    for session in sessions:
        session.close()


@pytest.fixture
def sessions(made):
    for session in made[0]:
        session.restore(made[1], 0)
    return made[0]


SETTINGS = PPOSettings(minibatch_size=16, num_epochs=2, normalise_rewards=True)


def parameters_differ(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return any((a != b).any() for a, b in pairs)


def test_equal_rounds_and_seeds_give_equal_parameters(sessions):
    for session in sessions:
        samples = SyncSamples(session, SETTINGS, 3)
        for number in range(4):
            samples.train(random_round(number), number * 80)
    assert not parameters_differ(*sessions)
    assert sessions[0].learner_steps == sessions[1].learner_steps > 8


def test_another_seed_gives_other_parameters(sessions):
    for seed, session in enumerate(sessions):
        SyncSamples(session, SETTINGS, seed).train(random_round(), 0)
    assert parameters_differ(*sessions)


def test_a_restored_run_goes_on_as_the_first(sessions):
    one, other = sessions
    first = SyncSamples(one, SETTINGS, 3)
    for number in range(2):
        first.train(random_round(number), 0)
    state, own = one.state(), first.state()
    second = SyncSamples(other, SETTINGS, 3)
    second.restore(own)
    other.restore(state, one.learner_steps)
    for samples in (first, second):
        samples.train(random_round(2), 0)
    assert not parameters_differ(one, other)
    for name, array in first.state().items():
        np.testing.assert_array_equal(array, second.state()[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: {"observation": r.observation[:-1]}, r"observation: .*21, 4.*20, 4"),
        (lambda r: {"value": r.value[:-1]}, r"value: .*21, 4.*20, 4"),
        (lambda r: {"raw_action": r.raw_action[:, :3]}, r"raw_action: .*20, 4.*20, 3"),
        (lambda r: {"stream": r.stream[:2]}, r"stream: .*\[4\].*\[2\]"),
        (lambda r: {"reward": r.reward.astype("f8")}, "reward.*float32.*float64"),
        (lambda r: {"first_is_last": r.first_is_last[None]}, "first_is_last.*bool"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change, message):
    rows = random_round()
    with pytest.raises(ValueError, match=message):
        train(rows._replace(**change(rows)))


@pytest.mark.parametrize(
    "settings",
    [
        {"num_epochs": 0},
        {"minibatch_size": 0},
        {"discount": 1.1},
        {"lambda_": -0.1},
        {"max_kl": 0.0},
        {"reward_clip": -1},
        {"advantage_normalisation": "all"},
    ],
)
def test_bad_settings_are_refused_with_the_value(settings):
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=f"{name} must .* got {value!r}"):
        PPOSettings(**settings)
