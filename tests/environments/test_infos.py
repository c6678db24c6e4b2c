"""Infos of many slots, against what Gymnasium itself makes of them."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import SyncVectorEnv

from distrl.environments.infos import stack_infos


class Tells(gymnasium.Env):
    """Says one thing."""

    observation_space = action_space = spaces.Discrete(2)

    def __init__(self, info):
        self._info = info

    def reset(self, *, seed=None, options=None):
        return 0, self._info


def gymnasiums(infos, num_envs):
    made = [lambda slot=slot: Tells(infos.get(slot, {})) for slot in range(num_envs)]
    return SyncVectorEnv(made).reset()[1]


@pytest.mark.parametrize(
    "infos",
    [
        {},
        {1: {}},
        {0: {"a": 1}, 2: {"a": 3}},
        {1: {"a": 1.5}, 2: {"a": -2.5}},
        {0: {"a": True}, 1: {"a": False}},
        {2: {"a": np.float32(1.5)}, 0: {"a": np.float32(2.5)}},
        {0: {"a": np.uint8(200)}, 2: {"a": np.uint8(7)}},
        {0: {"a": np.arange(3)}, 2: {"a": np.arange(3) + 5}},
        {1: {"a": np.ones((2, 2), np.uint8)}},
        {1: {"a": np.array(4.0)}},
        {0: {"a": "text"}, 2: {"a": "other"}},
        {0: {"a": None}, 1: {"a": None}},
        {1: {"a": [1, 2]}, 2: {"a": (3,)}},
        {0: {"a": 1}, 1: {"b": 2.0}, 2: {"a": 3, "c": "x"}},
        {
            0: {"a": {"x": 1, "y": {"z": np.ones(2)}}},
            2: {"a": {"y": {"z": np.ones(2)}}},
        },
        {1: {"a": {}}},
        {0: {"episode": {"r": 3.0, "l": 2, "t": 0.5}}},
    ],
)
def test_equal_to_gymnasium(infos):
    got, expected = stack_infos(infos, 3), gymnasiums(dict(sorted(infos.items())), 3)
    assert data_equivalence(got, expected, exact=True), (got, expected)


def test_values_and_masks():
    got = stack_infos({2: {"a": 5}, 0: {"a": 4, "b": "x"}}, 4)
    assert got["a"].tolist() == [4, 0, 5, 0]
    assert got["_a"].tolist() == [True, False, True, False]
    assert got["b"].tolist() == ["x", None, None, None]
    assert got["_b"].tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    "first, second, expected",
    [
        (1, 2.5, [1.0, 2.5]),
        (np.float32(1), np.float64(1e300), [1.0, 1e300]),
        (True, 7, [1, 7]),
        (np.uint8(200), np.int16(-300), [200, -300]),
        (1, "x", [1, "x"]),
        (1, None, [1, None]),
    ],
)
def test_no_value_is_lost_where_types_differ(first, second, expected):
    """Gymnasium casts to the type that came first, or raises."""
    got = stack_infos({0: {"a": first}, 1: {"a": second}}, 2)
    assert got["a"].tolist() == expected


def test_numpys_bools_are_bools_too():
    """Gymnasium makes objects of them, with None in the other slots."""
    got = stack_infos({1: {"a": np.bool_(True)}}, 2)["a"]
    assert got.dtype == bool and got.tolist() == [False, True]


def test_arrays_of_different_shapes_stay_apart():
    got = stack_infos({0: {"a": np.zeros(2)}, 2: {"a": np.ones(3)}}, 3)
    assert [None if one is None else one.tolist() for one in got["a"]] == [
        [0, 0],
        None,
        [1, 1, 1],
    ]


def test_a_dict_and_something_else_stay_apart():
    got = stack_infos({0: {"a": {"x": 1}}, 1: {"a": 2}}, 2)
    assert got["a"].tolist() == [{"x": 1}, 2]


def test_what_is_stacked_is_a_copy():
    given = np.zeros(2)
    got = stack_infos({0: {"a": given}}, 1)
    given[:] = 9
    assert got["a"].tolist() == [[0, 0]]
