import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, FrameStackObservation

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec
from distrl.environments.spaces import (
    environment_spec,
    leaf_getters,
    observation_check,
    space_spec,
    split_actions,
)


class Shows(gymnasium.Env):
    """Only its spaces matter."""

    def __init__(self, space):
        self.observation_space = space
        self.action_space = spaces.Discrete(2)


@pytest.mark.parametrize(
    "space, spec",
    [
        (spaces.Box(0, 255, (2, 3), np.uint8), ArraySpec((2, 3), "uint8", 0, 255)),
        (spaces.Box(-np.inf, np.inf, (2,)), ArraySpec((2,), "float32")),
        (
            spaces.Box(np.array([-1.0, -np.inf]), np.array([1.0, 2.0])),
            ArraySpec((2,), "float32", (-1.0, -np.inf), (1.0, 2.0)),
        ),
        (spaces.Box(0.0, np.inf, ()), ArraySpec((), "float32", 0.0)),
        (spaces.Box(-1, 1, (0,)), ArraySpec((0,), "float32")),
        (spaces.Discrete(4), ArraySpec((), "int64", 0, 3)),
        (spaces.Discrete(4, start=-2), ArraySpec((), "int64", -2, 1)),
        (spaces.MultiDiscrete([3, 3]), ArraySpec((2,), "int64", 0, 2)),
        (
            spaces.MultiDiscrete([[3, 2]], start=[[1, 5]]),
            ArraySpec((1, 2), "int64", (1, 5), (3, 6)),
        ),
        (spaces.MultiBinary([2, 2]), ArraySpec((2, 2), "int8", 0, 1)),
    ],
)
def test_leaf_spaces(space, spec):
    assert space_spec(space) == spec


def test_nested_spaces_have_sorted_keys():
    space = spaces.Dict(
        {
            "b": spaces.Discrete(2),
            "a": spaces.Tuple([spaces.Discrete(3), spaces.Dict(z=spaces.Discrete(5))]),
        }
    )
    spec = space_spec(space)
    assert list(spec) == ["a", "b"]
    assert spec == {
        "a": (ArraySpec((), "int64", 0, 2), {"z": ArraySpec((), "int64", 0, 4)}),
        "b": ArraySpec((), "int64", 0, 1),
    }


def test_unsupported_space_is_named():
    with pytest.raises(ConfigError, match="Text"):
        space_spec(spaces.Dict(words=spaces.Text(5)))


BOX = spaces.Box(0, 255, (2, 2), np.uint8)


def test_stack_is_found_below_other_wrappers():
    stacked = FrameStackObservation(Shows(BOX), 3)
    environment = gymnasium.wrappers.TimeLimit(stacked, 5)
    assert environment_spec(environment).observation == ArraySpec(
        (3, 2, 2), "uint8", 0, 255, num_stacked=3
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda environment: environment,
        lambda environment: FlattenObservation(FrameStackObservation(environment, 3)),
        lambda environment: FrameStackObservation(environment, 3, padding_type="zero"),
    ],
)
def test_what_cannot_be_rebuilt_from_frames_is_no_stack(wrap):
    assert environment_spec(wrap(Shows(BOX))).observation.num_stacked == 1


def test_environment_may_say_that_it_stacks():
    environment = Shows(spaces.Dict(a=BOX))
    environment.num_stacked = 2
    assert environment_spec(environment).observation["a"].num_stacked == 2


def test_getters_follow_the_spec_not_the_value():
    space = spaces.Dict(
        b=spaces.Discrete(9), a=spaces.Tuple([spaces.Discrete(9), spaces.Discrete(9)])
    )
    value = {"b": 3, "a": [1, 2]}
    assert [get(value) for get in leaf_getters(space_spec(space))] == [1, 2, 3]


@pytest.mark.parametrize(
    "value, message",
    [
        ({"a": np.zeros(2, np.float32)}, "'b'.*int64.*keys.*'a'"),
        ({"a": np.zeros(3, np.float32), "b": 1}, r"'a'.*float32\[2\].*float32\[3\]"),
        ({"a": np.zeros(2), "b": 1}, r"'a'.*float32\[2\].*float64\[2\]"),
        ({"a": np.zeros(2, np.float32), "b": 1.0}, r"'b'.*int64\[\].*float64\[\]"),
        (np.zeros(2, np.float32), "'a'.*ndarray"),
    ],
)
def test_wrong_observation_names_leaf_expected_and_got(value, message):
    spec = space_spec(spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3)))
    with pytest.raises(ValueError, match=message):
        observation_check(spec)(value)


def test_discrete_actions_are_python_integers():
    rows = split_actions(spaces.Discrete(5), np.array([1, 4]))
    assert rows == [1, 4] and all(type(row) is int for row in rows)


def test_split_of_nested_actions():
    space = spaces.Dict(
        move=spaces.Box(-1, 1, (2,)),
        pick=spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, ())]),
    )
    move = np.array([[0.5, 0.0], [1.0, -1.0]], np.float32)
    rows = split_actions(
        space, {"pick": (np.array([2, 0]), np.array([0.25, 0.75])), "move": move}
    )
    assert all(space.contains(row) for row in rows)
    assert [row["pick"] for row in rows] == [(2, 0.25), (0, 0.75)]
    rows[0]["move"][:] = 9
    assert move[0, 0] == 0.5


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 2, 1)])
def test_actions_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match="expected actions"):
        split_actions(spaces.Box(-1, 1, (2,)), np.zeros(shape))


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Discrete(3), np.zeros((4, 1), np.int64)),
        (spaces.Discrete(3), np.zeros(4)),
        (spaces.Dict(a=spaces.Discrete(3)), {"b": np.zeros(4, np.int64)}),
        (spaces.Dict(a=spaces.Discrete(3)), {}),
    ],
)
def test_actions_of_another_form_are_refused(space, actions):
    with pytest.raises(ValueError, match="expected"):
        split_actions(space, actions)
