"""The learning session: steps, target updates, state that can be taken up again."""

from functools import partial

import numpy as np
import pytest

from distrl.core.records import ReplayBatch, Transition
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.learners.learning_session import LearningSession
from distrl.models.ddpg import DDPGModel
from distrl.models.dqn import DQNModel
from distrl.networks.q_network import q_network
from distrl.networks.torsos import mlp

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 1))
B = 8


def make_session(seed=0):
    network = partial(q_network, torso=partial(mlp, hidden_sizes=(5,)))
    model = DQNModel(network, learning_rate=0.01, target_update_period=4)
    return LearningSession(model, SPEC, seed)


@pytest.fixture(scope="module")
def made():
    """Two sessions, and what they started with: making one costs about a second."""
    sessions = make_session(seed=0), make_session(seed=0)
    yield [(session, session.state()) for session in sessions]
    for session in sessions:
        session.close()


@pytest.fixture
def session(made):
    made[0][0].restore(made[0][1], 0)
    return made[0][0]


@pytest.fixture
def twin(made):
    made[1][0].restore(made[1][1], 0)
    return made[1][0]


def batch(seed):
    rng = np.random.default_rng(seed)
    s_tm1, s_t = rng.normal(size=(2, B, 3)).astype(np.float32)
    reward = rng.normal(size=B).astype(np.float32)
    discount = np.full(B, 0.9, np.float32)
    action = rng.integers(0, 2, B)
    transition = Transition(s_tm1, action, reward, discount, s_t)
    return ReplayBatch(transition, np.ones(B, np.float32), np.arange(B))


def networks(session):
    """Online and target variables, with names that can be compared."""
    state = session.state()
    return [
        {
            name.split("/", 1)[1]: v
            for name, v in state.items()
            if name.startswith(scope)
        }
        for scope in ("online/", "target/")
    ]


def equal(one, other):
    assert one.keys() == other.keys() and one
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_a_step_counts_and_changes_the_online_parameters(session):
    before = session.parameters()
    priorities, metrics = session.train(batch(0))
    assert session.learner_steps == 1 and metrics == {}
    assert priorities.shape == (B,) and priorities.dtype == np.float32
    assert (priorities >= 0).all()
    after = session.parameters()
    assert any(not np.array_equal(b, a) for b, a in zip(before, after, strict=True))


def test_training_on_one_batch_brings_its_errors_down(session):
    data = batch(0)
    discount = np.zeros(B, np.float32)
    data = data._replace(transition=data.transition._replace(discount_t=discount))
    first, _ = session.train(data)
    for _ in range(300):
        last, _ = session.train(data)
    assert last.mean() < 0.3 * first.mean()


def test_measuring_does_not_change_the_step(session, twin):
    priorities, _ = session.train(batch(1))
    measured, metrics = twin.train(batch(1), measure=True)
    np.testing.assert_array_equal(priorities, measured)
    assert set(metrics) >= {"loss", "gradient_norm", "mean_q"}
    assert all(np.isfinite(float(value)) for value in metrics.values())
    assert equal(session.state(), twin.state())


def test_the_target_follows_every_so_many_steps(session):
    online, target = networks(session)
    assert equal(online, target)  # before the first step
    old = target
    for step in range(1, 13):
        session.train(batch(step))
        online, target = networks(session)
        if step % 4 == 0:
            assert equal(online, target)
            old = target
        else:
            assert not equal(online, target) and equal(target, old)


def test_a_restored_session_goes_on_as_if_nothing_had_happened(session, twin):
    for seed in range(6):
        session.train(batch(seed))
    twin.restore(session.state(), session.learner_steps)
    assert twin.learner_steps == 6
    assert equal(session.state(), twin.state())
    for seed in range(6, 13):  # Adam's moments and the target's turn are in it
        expected, _ = session.train(batch(seed))
        got, _ = twin.train(batch(seed))
        np.testing.assert_array_equal(expected, got)
    assert equal(session.state(), twin.state())


def test_parameters_are_in_the_order_of_their_specs(session):
    state = session.state()
    for spec, value in zip(session.parameter_specs, session.parameters(), strict=True):
        np.testing.assert_array_equal(state[spec.name], value)
        assert tuple(spec.shape) == value.shape


def test_equal_seeds_start_alike(made):
    (_, first), (_, second) = made
    other = make_session(seed=2)
    assert equal(first, second) and not equal(first, other.state())
    other.close()


def test_a_state_with_other_names_is_refused_by_name(session):
    state = session.state()
    name = session.parameter_specs[0].name
    value = state.pop(name)
    with pytest.raises(ValueError, match=name):
        session.restore(state, 5)
    assert session.learner_steps == 0
    state[name] = value
    session.restore(state, 5)


def test_a_state_of_another_shape_is_refused_by_name(session):
    state = session.state()
    name = session.parameter_specs[0].name
    state[name] = np.zeros((2, 2, 2), np.float32)
    with pytest.raises(ValueError, match=name):
        session.restore(state, 5)
    assert session.learner_steps == 0


def test_the_graph_does_not_grow(session):
    session.train(batch(0), measure=True)
    graph = session._session.graph
    before = len(graph.get_operations())
    for step in range(200):
        session.train(batch(step), measure=step % 10 == 0)
        session.parameters()
    session.restore(session.state(), 200)
    assert len(graph.get_operations()) == before


def test_targets_that_the_training_step_moves_are_left_to_it():
    """Targets begin as what they follow, and are behind it after every step."""
    spec = SPEC._replace(action=ArraySpec((2,), "float32", -1, 1))
    session = LearningSession(DDPGModel(polyak=0.9), spec, seed=0)
    before = session.state()
    named = session.named(session.parameters())
    assert {name.split("/")[0] for name in named} == {"policy", "critic"}
    action = np.random.default_rng(0).uniform(-1, 1, (B, 2)).astype(np.float32)
    one = batch(0)
    one = one._replace(transition=one.transition._replace(a_tm1=action))
    session.train(one)
    after = session.state()
    session.close()
    for name in named:
        np.testing.assert_array_equal(before[name], before[f"target_{name}"])
        expected = 0.9 * before[name] + 0.1 * after[name]
        np.testing.assert_allclose(
            after[f"target_{name}"], expected, rtol=1e-5, atol=1e-7
        )
