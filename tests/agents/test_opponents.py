"""Opponents: chance, the newest policy, and earlier ones."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.agents.opponents import PolicyOpponents, RandomOpponents
from distrl.checkpoints.parameters import flatten_parameters
from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.models.dqn import DQNModel
from distrl.models.impala import ImpalaModel
from distrl.models.recurrent_core import RecurrentCore

A = 3
SPEC = EnvironmentSpec(
    {
        "action_mask": ArraySpec((A,), "int8", 0, 1),
        "observation": ArraySpec((1,), "float32"),
    },
    ArraySpec((), "int64", 0, A - 1),
)
SEED = np.random.SeedSequence(5)


def constant_network(spec, observation):
    """Values that do not depend on what is seen: the parameters are the values."""
    values = tf.get_variable("values", [A], initializer=tf.zeros_initializer())
    return tf.zeros_like(observation) + values


def message(*legal):
    mask = np.isin(np.arange(A), legal)
    seen = {"action_mask": mask.astype(np.int8), "observation": np.zeros(1, np.float32)}
    return {"observation": seen, "legal_actions": mask}


def preferring(action):
    return flatten_parameters([np.eye(A, dtype=np.float32)[action]])


def made(num_games=4, **more):
    more.setdefault("epsilon", 0.0)
    model = DQNModel(constant_network)
    return PolicyOpponents(SPEC, num_games, SEED, model=model, **more)


def test_chance_keeps_to_the_rules():
    opponents = RandomOpponents(SPEC, 2, SEED)
    acted = [opponents.act([0, 1], [message(1, 2), message(0)]) for _ in range(300)]
    first, second = np.array(acted).T
    assert set(second) == {0} and set(first) == {1, 2}
    assert 100 < (first == 1).sum() < 200


def test_opponents_act_under_the_newest_parameters():
    opponents = made()
    for action in (2, 0, 1):
        opponents.load(action, preferring(action))
        for game in range(4):
            opponents.begin(game, game)
        acted = opponents.act([3, 1], [message(0, 1, 2)] * 2)
        assert [int(a) for a in acted] == [action] * 2
    assert int(opponents.act([0], [message(0, 2)])[0]) in (0, 2)
    opponents.close()


def test_some_moves_are_any_legal_ones():
    opponents = made(epsilon=0.5)
    opponents.load(1, preferring(0))
    acted = [int(opponents.act([0], [message(0, 1)])[0]) for _ in range(400)]
    assert set(acted) == {0, 1} and 60 < acted.count(1) < 140
    opponents.close()


def test_games_are_played_against_earlier_versions_too():
    opponents = made(400, pool_size=2, pool_period=1, past_share=0.5)
    for version, action in enumerate((0, 1, 2)):
        opponents.load(version, preferring(action))
    for game in range(400):
        opponents.begin(game, game)
    acted = np.array(opponents.act(range(400), [message(0, 1, 2)] * 400))
    # The pool has versions 1 and 2, that of version 0 was pushed out; the newest is 2.
    assert 60 < (acted == 1).sum() < 140 and (acted == 0).sum() == 0
    again = np.array(opponents.act(range(400), [message(0, 1, 2)] * 400))
    np.testing.assert_array_equal(acted, again)  # a game has one opponent
    opponents.close()


def test_a_version_enters_the_pool_now_and_then():
    opponents = made(200, pool_size=3, pool_period=2, past_share=1.0)
    for version, action in enumerate((0, 1, 1, 2)):
        opponents.load(version, preferring(action))
    for game in range(200):
        opponents.begin(game, game)
    acted = np.array(opponents.act(range(200), [message(0, 1, 2)] * 200))
    assert set(acted.tolist()) == {0, 1}
    opponents.close()


def test_a_stochastic_policy_is_drawn_from():
    opponents = PolicyOpponents(SPEC, 1, SEED, model=ImpalaModel())
    acted = [int(opponents.act([0], [message(0, 2)])[0]) for _ in range(60)]
    assert set(acted) == {0, 2}
    opponents.close()


@pytest.mark.parametrize(
    "more, text",
    [
        ({"epsilon": 1.5}, "epsilon 1.5"),
        ({"past_share": -1}, "past_share -1"),
        ({"pool_size": -1}, "pool_size"),
        ({"pool_period": 0}, "pool_period"),
    ],
)
def test_bad_numbers_are_refused(more, text):
    with pytest.raises(ConfigError, match=text):
        made(**more)


def test_a_policy_with_a_memory_is_refused():
    model = ImpalaModel(core=RecurrentCore(4))
    with pytest.raises(ConfigError, match="recurrent core"):
        PolicyOpponents(SPEC, 1, SEED, model=model)
