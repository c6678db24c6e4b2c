"""States go on from step to step, and are zero where an episode begins."""

import numpy as np

from distrl.core.core_states import CoreStates, RememberingPolicy
from distrl.core.specs import ArraySpec

SPEC = {"a": ArraySpec((), "float32"), "b": (ArraySpec((2,), "int64"),)}


def test_some_streams_are_kept_and_cleared():
    states = CoreStates(SPEC, 4)
    new = {"a": np.array([1, 2], np.float32), "b": (np.full((2, 2), 7),)}
    states.keep(new, slice(1, 3))
    assert states.now["a"].tolist() == [0, 1, 2, 0]
    states.clear(np.array([True, True, False, False]))
    assert states.now["a"].tolist() == [0, 0, 2, 0]
    assert states.now["b"][0].tolist() == [[0, 0], [0, 0], [7, 7], [0, 0]]
    assert states.of(slice(2, 4))["a"].tolist() == [2, 0]
    assert new["a"].tolist() == [1, 2]


def test_without_a_core_there_is_nothing():
    states = CoreStates((), 3)
    states.keep(())
    states.clear(np.ones(3, bool))
    assert states.now == states.of(slice(0, 1)) == ()


def summing(observation, state):
    total = state + observation
    return total, total


def test_rows_go_on_from_the_call_before():
    policy = RememberingPolicy(summing, ArraySpec((), "float64"))
    assert policy.act(np.array([1.0, 10.0])).tolist() == [1, 10]
    assert policy.act(np.array([1.0, 10.0])).tolist() == [2, 20]
    began = np.array([False, True])
    assert policy.act(np.array([1.0, 10.0]), began).tolist() == [3, 10]
    assert policy.act(np.array([5.0])).tolist() == [5]  # others: all anew
    assert policy.act(np.array([1.0, 10.0])).tolist() == [1, 10]
