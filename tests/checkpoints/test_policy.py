"""Policies: parameters in, actions out."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.checkpoints.parameters import flatten_parameters, unflatten_parameters
from distrl.checkpoints.policy import GreedyPolicy, LocalPolicy, PolicySession
from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.networks.discrete import greedy_action

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int32", -1, 1))


class LinearModel:
    """Action values = observation · w + b."""

    core_spec = ()

    def build_acting(self, spec, observation_ph):
        with tf.variable_scope("online"):
            w = tf.get_variable("w", [3, 3], use_resource=True)
            b = tf.get_variable("b", [3], use_resource=True)
            return tf.matmul(observation_ph, w) + b

    def build_greedy(self, spec, observation_ph, core_ph):
        return greedy_action(spec, self.build_acting(spec, observation_ph)), {}


def parameters(seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s).astype(np.float32) for s in ((3, 3), (3,))]


def named(seed):
    return dict(zip(("online/w", "online/b"), parameters(seed), strict=True))


@pytest.fixture
def policy():
    policy = LocalPolicy(LinearModel(), SPEC)
    yield policy
    policy.close()


OBSERVATION = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


def test_values_are_those_of_the_parameters_loaded_last(policy):
    for seed in (1, 2):
        w, b = parameters(seed)
        policy.load([w, b])
        got = policy.action_values(OBSERVATION)
        np.testing.assert_allclose(got, OBSERVATION @ w + b, rtol=1e-4, atol=1e-5)


def test_any_batch_size(policy):
    for size in (0, 1, 20):
        assert policy.action_values(OBSERVATION[:size]).shape == (size, 3)


def test_specs_name_the_parameters_in_the_order_of_load(policy):
    assert policy.parameter_specs == [
        ("online/w", (3, 3), "float32"),
        ("online/b", (3,), "float32"),
    ]


def test_parameters_travel_as_bytes(policy):
    data = flatten_parameters(parameters(4))
    policy.load(unflatten_parameters(data, policy.parameter_specs))
    w, b = parameters(4)
    got = policy.action_values(OBSERVATION)
    np.testing.assert_allclose(got, OBSERVATION @ w + b, rtol=1e-4, atol=1e-5)


def test_a_policy_starts_from_its_seed():
    values = []
    for seed in (1, 1, 2):
        policy = LocalPolicy(LinearModel(), SPEC, seed)
        values.append(policy.action_values(OBSERVATION))
        policy.close()
    np.testing.assert_array_equal(values[0], values[1])
    assert (values[0] != values[2]).any()


def test_parameters_that_do_not_fit_are_named_and_change_nothing(policy):
    before = policy.action_values(OBSERVATION)
    w, b = parameters(1)
    for wrong, message in [
        ([w], "expected 2 parameters, got 1"),
        ([w, b[:2]], "online/b"),
        ([w.astype(np.float64), b], "online/w: expected float32.*float64"),
    ]:
        with pytest.raises(ValueError, match=message):
            policy.load(wrong)
    np.testing.assert_array_equal(policy.action_values(OBSERVATION), before)


def test_an_observation_of_another_structure_is_refused(policy):
    with pytest.raises(ValueError, match="observation"):
        policy.action_values({"x": OBSERVATION})


@pytest.mark.parametrize(
    "wrong",
    [
        OBSERVATION.astype(np.float64),
        OBSERVATION[:, :2],
        OBSERVATION[0],
        OBSERVATION.tolist(),
    ],
)
def test_an_observation_that_does_not_fit_is_refused(policy, wrong):
    """Without the check a wrong dtype ends the whole process."""
    with pytest.raises(ValueError, match=r"observation: expected"):
        policy.action_values(wrong)


def test_arrays_need_not_be_contiguous(policy):
    big = np.random.default_rng(0).normal(size=(7, 9)).astype(np.float32)
    for view in (big[:, 3:6], big[::-1, :3], np.asfortranarray(big[:, :3])):
        expected = policy.action_values(np.array(view, order="C"))
        np.testing.assert_allclose(policy.action_values(view), expected, rtol=1e-6)


def test_the_leaves_of_a_nest_reach_their_places():
    spec = EnvironmentSpec(
        {"z": ArraySpec((1,), "float32"), "a": ArraySpec((1,), "float32")}, SPEC.action
    )

    class Model:
        def build_acting(self, spec, observation_ph):
            return tf.concat([observation_ph["z"], observation_ph["a"]], axis=1)

    policy = LocalPolicy(Model(), spec)
    ones = np.ones((1, 1), np.float32)
    values = policy.action_values({"a": 2 * ones, "z": ones})
    np.testing.assert_array_equal(values, [[1, 2]])
    policy.close()


def test_greedy_actions_in_the_environments_numbering():
    extra = {"target/w": np.zeros(1)}
    policy = GreedyPolicy(LinearModel(), SPEC, named(1) | extra)
    for seed in (1, 2):
        w, b = parameters(seed)
        policy.load(named(seed))
        actions = policy.act(OBSERVATION)
        assert actions.dtype == np.int32
        np.testing.assert_array_equal(actions, (OBSERVATION @ w + b).argmax(1) - 1)
        assert len(set(actions.tolist())) > 1
    policy.close()


def test_a_greedy_action_may_be_a_nest():
    """Leaves go by their names, whatever order the model gives them in."""
    leaf = ArraySpec((1,), "float32")
    spec = EnvironmentSpec(leaf, {"z": leaf, "a": leaf})

    class Model:
        core_spec = ()

        def build_greedy(self, spec, observation_ph, core_ph):
            w = tf.get_variable("w", [], use_resource=True)
            return {"z": w * observation_ph, "a": -observation_ph}, {}

    policy = GreedyPolicy(Model(), spec, {"w": np.array(5, np.float32)})
    action = policy.act(np.array([[2.0], [3.0]], np.float32))
    policy.close()
    np.testing.assert_array_equal(action["z"], [[10], [15]])
    np.testing.assert_array_equal(action["a"], [[-2], [-3]])


def test_inputs_reach_the_graph_in_their_order():
    number = ArraySpec((), "float32")
    session = PolicySession(
        lambda minuend, pair: [minuend - pair["b"], 2 * pair["a"]],
        {"minuend": number, "pair": {"b": number, "a": number}},
    )
    one = np.ones(2, np.float32)
    difference, a = session.run(7 * one, {"a": 3 * one, "b": 2 * one})
    np.testing.assert_array_equal([difference, a], [[5, 5], [6, 6]])
    with pytest.raises(ValueError, match="pair_a: expected"):
        session.run(one, {"a": one.astype(int), "b": one})
    with pytest.raises(ValueError):
        session.run(one)
    session.close()


def test_greedy_policy_refuses_what_it_cannot_use():
    with pytest.raises(ValueError, match="online/b"):
        GreedyPolicy(LinearModel(), SPEC, {"online/w": parameters(1)[0]})
    continuous = SPEC._replace(action=ArraySpec((2,), "float32"))
    with pytest.raises(ConfigError, match="float32"):
        GreedyPolicy(LinearModel(), continuous, named(1))
