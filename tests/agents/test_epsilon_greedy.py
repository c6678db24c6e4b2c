"""ε-greedy decisions: how often they explore, and the values they report."""

import numpy as np
import pytest

from distrl.agents.epsilon_greedy import EpsilonGreedy
from distrl.checkpoints.parameters import ParameterSpec, flatten_parameters
from distrl.core.specs import ArraySpec
from distrl.networks.action_mask import ILLEGAL

ACTION = ArraySpec((), "int32", minimum=-1, maximum=2)


class TablePolicy:
    """Action values that are looked up: observation k has row k of the table."""

    parameter_specs = [ParameterSpec("table", (3, 4), "float32")]

    def __init__(self):
        self.table = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
        self.closed = False

    def load(self, parameters):
        (self.table,) = parameters

    def action_values(self, observation):
        return self.table[observation]

    def close(self):
        self.closed = True


def greedy_policy(epsilons, policy=None):
    return EpsilonGreedy(
        policy or TablePolicy(), ACTION, epsilons, np.random.SeedSequence(7)
    )


def test_each_slot_explores_as_often_as_its_epsilon_says():
    epsilons = [0.0, 0.1, 0.5, 1.0]
    policy = TablePolicy()
    decides = greedy_policy(epsilons, policy)
    observation = np.zeros(4, int)
    best = policy.table[0].argmax() - 1
    draws = 4000
    actions = np.stack([decides.decide(observation).action for _ in range(draws)])
    others = (actions != best).mean(axis=0)
    expected = 0.75 * np.asarray(epsilons)  # a random action may be the best one
    np.testing.assert_allclose(others, expected, atol=4 * 0.5 / np.sqrt(draws))
    assert others[0] == 0.0
    counts = np.bincount(actions[:, 3] + 1, minlength=4) / draws
    np.testing.assert_allclose(counts, 0.25, atol=0.03)


def test_values_are_those_of_the_action_and_of_the_best_one():
    policy = TablePolicy()
    decides = greedy_policy([1.0] * 3, policy)
    observation = np.array([2, 0, 1])
    for _ in range(20):
        decision = decides.decide(observation)
        assert decision.action.dtype == np.int32
        rows = policy.table[observation]
        taken = rows[np.arange(3), decision.action + 1]
        np.testing.assert_array_equal(decision.value_taken, taken)
        np.testing.assert_array_equal(decision.value_max, rows.max(axis=1))
        assert decision.value_taken.dtype == decision.value_max.dtype == np.float32


def test_greedy_takes_the_best_of_any_number_of_observations():
    policy = TablePolicy()
    decides = greedy_policy([1.0], policy)
    observation = np.array([0, 1, 2, 1, 0])
    np.testing.assert_array_equal(
        decides.greedy(observation), policy.table[observation].argmax(axis=1) - 1
    )


def test_equal_seeds_decide_alike():
    one, two = greedy_policy([0.5] * 3), greedy_policy([0.5] * 3)
    observation = np.arange(3)
    for _ in range(10):
        np.testing.assert_array_equal(
            one.decide(observation).action, two.decide(observation).action
        )


def test_parameters_are_exchanged_with_their_version():
    policy = TablePolicy()
    decides = greedy_policy([0.0], policy)
    assert decides.version == -1
    table = np.eye(3, 4, dtype=np.float32)
    decides.load(12, flatten_parameters([table]))
    assert decides.version == 12
    np.testing.assert_array_equal(decides.greedy(np.arange(3)), [-1, 0, 1])
    with pytest.raises(ValueError):
        decides.load(13, np.zeros(5, np.uint8))
    assert decides.version == 12


def test_what_is_not_legal_is_never_explored():
    policy = TablePolicy()
    policy.table[:] = 0.0
    policy.table[1, [0, 2]] = ILLEGAL
    policy.table[2, :3] = ILLEGAL
    decides = greedy_policy([1.0, 1.0, 1.0], policy)
    draws = np.stack([decides.decide(np.arange(3)).action for _ in range(2000)]) + 1
    counts = [np.bincount(column, minlength=4) / 2000 for column in draws.T]
    np.testing.assert_allclose(counts[0], 0.25, atol=0.05)
    np.testing.assert_allclose(counts[1], [0, 0.5, 0, 0.5], atol=0.05)
    np.testing.assert_array_equal(counts[2], [0, 0, 0, 1])
