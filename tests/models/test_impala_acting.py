"""IMPALA's acting graphs: what they leave for the learner, with and without a core."""

import functools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from impala_graphs import Actor, Learner, example_unrolls
from impala_oracle import OPTIONS, log_softmax, oracle_targets

from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves
from distrl.losses.returns import step_mask
from distrl.models.impala import ImpalaModel
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.distributions import action_distribution
from distrl.networks.placeholders import placeholders

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 1))
NESTED = EnvironmentSpec(
    {"a": ArraySpec((2,), "float64"), "b": ArraySpec((), "int64", 0, 4)},
    {
        "push": ArraySpec((2,), "float32", -1.0, 1.0),
        "turn": ArraySpec((3,), "int64", 0, 2),
    },
)
T, U = 5, 6
CONTINUOUS = SPEC._replace(action=ArraySpec((2,), "float32", -2.0, 2.0))
TWO_LEAVES = SPEC._replace(
    action={
        "pull": ArraySpec((1,), "float32", -1.0, 1.0),
        "push": ArraySpec((2,), "float32", -1.0, 1.0),
    }
)
SQUASHED = functools.partial(action_distribution, squash=True)
STATE_DEPENDENT = functools.partial(action_distribution, state_dependent_std=True)


@pytest.mark.parametrize(
    ("spec", "distribution", "size"),
    [
        (SPEC, action_distribution, 2),
        (CONTINUOUS, action_distribution, 4),
        (CONTINUOUS, SQUASHED, 4),
        (CONTINUOUS, STATE_DEPENDENT, 4),
        (NESTED, action_distribution, 2 + 2 + 9),
        (TWO_LEAVES, action_distribution, 3 + 3),
    ],
)
def test_behaviour_tells_the_policy_that_acted(made, spec, distribution, size):
    """Whatever the learner's parameters are by now, also those of the deviation."""
    model = ImpalaModel(distribution=distribution)
    assert model.behaviour_size(spec) == size
    actor = made(Actor, model, spec)
    actor.randomise(0)
    data = example_unrolls(model, spec, T, U, 0)
    rows = map_nest(lambda leaf: leaf[:, 0], data.observation)
    acted = actor.act(rows)
    assert acted.behaviour.shape == (U, size)
    with tf.Graph().as_default(), tf.Session() as session:
        policy = model.behaviour_policy(spec, tf.constant(acted.behaviour))
        assert not tf.global_variables()
        got = session.run(policy.log_prob(map_nest(tf.constant, acted.raw_action)))
    np.testing.assert_allclose(got, acted.log_prob, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", [SPEC, CONTINUOUS, NESTED])
def test_on_policy_all_weights_are_1(made, spec):
    model = ImpalaModel(discount=0.0, entropy_cost=0.0)
    one, actor = made(Learner, model, spec, T), made(Actor, model, spec)
    actor.load(one)
    data = example_unrolls(model, spec, T, U, 0)
    acted = [
        actor.act(map_nest(lambda leaf, t=t: leaf[:, t], data.observation))
        for t in range(T)
    ]
    data = data._replace(
        raw_action=map_nest(lambda *x: np.stack(x, 1), *[a.raw_action for a in acted]),
        behaviour=np.stack([a.behaviour for a in acted], 1),
    )
    got = one.run(one.graph.metrics, data)
    np.testing.assert_allclose(got["mean_rho"], 1.0, rtol=1e-4)
    np.testing.assert_allclose(got["approximate_kl"], 0.0, atol=1e-5)


def test_behaviour_of_another_size_is_refused():
    with (
        tf.Graph().as_default(),
        pytest.raises(ValueError, match=r"\[R, 4\].*\(7, 2\)"),
    ):
        ImpalaModel().behaviour_policy(CONTINUOUS, tf.zeros([7, 2]))


def test_acting_has_the_parameters_of_learning_in_one_order(made):
    model = ImpalaModel()
    one = made(Learner, model, NESTED, T)
    names = [v.op.name for v in one.graph.parameters]
    assert names and "network/action_push/log_std" in names
    with tf.Graph().as_default():
        observation = placeholders(NESTED.observation, "observation")
        model.build_acting(NESTED, observation, tf.placeholder(tf.int32, [2]))
        assert [v.op.name for v in tf.global_variables()] == names
    with tf.Graph().as_default():
        model.build_greedy(NESTED, placeholders(NESTED.observation, "observation"))
        assert [v.op.name for v in tf.global_variables()] == names


def test_nests_train(made):
    model = ImpalaModel()
    one = made(Learner, model, NESTED, T)
    before = one.values()
    one.run(one.graph.train_op, example_unrolls(model, NESTED, T, U, 0), 0.01)
    assert all((one.values()[name] != array).any() for name, array in before.items())


def core_rows(model, actor, data):
    """Log-probabilities [U, T, A], values [U, T + 1], the mask; step by step."""
    state, rows = data.core_state, []
    mask = step_mask(data.terminated.T, data.truncated.T, data.first_is_last).T
    for t in range(T + 1):
        acted = actor.act(data.observation[:, t], state)
        rows.append((log_softmax(acted.behaviour.astype(np.float64)), acted.value))
        begins = ~mask[:, t] if t < T else np.zeros(U, bool)
        state = map_nest(
            lambda leaf, b=begins: np.where(b[:, None], np.float32(0), leaf),
            acted.core_state,
        )
    log_pi, value = (np.stack(x, 1) for x in zip(*rows, strict=True))
    return log_pi[:, :-1], value.astype(np.float64), mask


def test_a_core_is_unrolled_as_it_acts(made):
    model = ImpalaModel(core=RecurrentCore(size=4, unroll_length=1), **OPTIONS)
    one, actor = made(Learner, model, SPEC, T), made(Actor, model, SPEC)
    actor.load(one)
    actor.randomise(1)
    one.load(actor)
    data = example_unrolls(model, SPEC, T, U, 0)
    assert (leaves(data.core_state)[0] != 0).all() and data.first_is_last.any()
    log_pi, value, mask = core_rows(model, actor, data)
    at = (*np.indices(mask.shape), data.raw_action)
    log_rho = log_pi[at] - log_softmax(data.behaviour.astype(np.float64))[at]
    vs, advantages = oracle_targets(data, log_rho, value, mask)
    got = one.run(one.graph.metrics, data)
    expected = {
        "policy_loss": -(log_pi[at] * advantages)[mask].sum(),
        "baseline_loss": ((vs - value[:, :-1]) ** 2)[mask].sum() / 2,
        "mean_rho": np.exp(log_rho)[mask].mean(),
    }
    for name, number in expected.items():
        np.testing.assert_allclose(got[name], number, rtol=1e-4, err_msg=name)
    before = one.values()
    one.run(one.graph.train_op, data, 0.1)
    assert all((one.values()[name] != array).any() for name, array in before.items())


def test_a_core_needs_its_state_when_acting():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="core is"):
        ImpalaModel(core=RecurrentCore()).build_acting(
            SPEC, placeholders(SPEC.observation, "o"), tf.placeholder(tf.int32, [2])
        )
