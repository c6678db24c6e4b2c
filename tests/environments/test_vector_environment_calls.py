"""Calls, attributes and frames; the simple environments of baselines."""

import functools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit
from small_environments import CountEnv, SimpleEnv

from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.slot_records import SlotSettings


def in_turn(*environments):
    """A factory that gives out these."""
    return functools.partial(next, iter(environments))


def zeros(environment):
    return np.zeros(environment.num_envs, np.int64)


def test_options_reach_the_environments():
    class Told(CountEnv):
        def reset(self, *, seed=None, options=None):
            self.told = options
            return super().reset(seed=seed)

    environment = SerialVectorEnvironment(Told, 2)
    given = {"level": 3}
    environment.reset(options=given)
    assert environment.get_attr("told") == [given, given] and given == {"level": 3}
    environment.reset()
    assert environment.get_attr("told") == [None, None]


def test_call_and_attributes():
    environment = SerialVectorEnvironment(
        in_turn(TimeLimit(CountEnv(3), 9), TimeLimit(CountEnv(4), 9)), 2
    )
    environment.reset()
    environment.step(zeros(environment))
    assert environment.call("add", 5) == [6, 6]
    assert environment.call("add", 5, twice=True) == [11, 11]
    assert environment.call("max_count") == environment.get_attr("max_count") == [3, 4]
    assert [method(1) for method in environment.get_attr("add")] == [2, 2]
    environment.set_attr("max_count", 7)
    assert environment.get_attr("max_count") == [7, 7]
    environment.set_attr("max_count", (8, 9))
    assert environment.get_attr("max_count") == [8, 9]
    assert [e.unwrapped.max_count for e in environment._slots.environments] == [8, 9]
    with pytest.raises(ValueError, match="expected 2 values, got 3"):
        environment.set_attr("max_count", [1, 2, 3])
    with pytest.raises(AttributeError, match="nothing") as caught:
        environment.get_attr("nothing")
    assert caught.value.environment_index == 0
    assert environment.get_attr("count") == [1, 1]  # and it goes on


def test_render():
    shown = SerialVectorEnvironment(lambda: CountEnv(render_mode="rgb_array"), 2)
    shown.reset()
    shown.step(zeros(shown))
    frames = shown.render()
    assert frames.shape == (2, 2, 2, 3) and frames.dtype == np.uint8
    assert (frames == 1).all()
    for mode in ("human", None):
        hidden = SerialVectorEnvironment(functools.partial(CountEnv, 3, False, mode), 2)
        with pytest.raises(NotImplementedError, match=f"Only rgb_array.*{mode}"):
            hidden.render()


def test_simple_environments_of_baselines():
    """V-2: rewards, infos and sums that follow from the definition, step by step."""
    environment = SerialVectorEnvironment(
        in_turn(*(SimpleEnv(seed) for seed in range(3))),
        3,
        settings=SlotSettings(AutoresetMode.SAME_STEP, keep_infos=True),
    )
    start, _ = environment.reset()
    assert start[:, 0, 0].tolist() == [172, 37, 168]
    rewards = [[1] * 6, [1 / 2, 1] * 3, [1 / 3, 2 / 3, 1] * 2]
    for k in range(6):
        step = environment.step(np.ones((3, 3, 8), np.uint8))
        expected = [172 + k + 1, 37 + k + 1, 168 + k + 1]
        assert step.observation[:, 0, 0].tolist() == expected
        np.testing.assert_allclose(step.reward, [row[k] for row in rewards], rtol=1e-6)
        assert step.terminated.tolist() == [row[k] == 1 for row in rewards]
        for slot, row in enumerate(rewards):
            infos = step.info if row[k] < 1 else step.info["final_info"]
            assert infos["foo"][slot] == f"bar{float(row[k])}"
    assert step.observation.shape == (3, 3, 8) and step.observation.dtype == np.uint8


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_sums_wrap_and_add_as_their_dtype_does(dtype):
    """V-1: against the environments themselves, with random actions."""
    alone = [SimpleEnv(seed, dtype=dtype) for seed in range(3)]
    environment = SerialVectorEnvironment(
        in_turn(*(SimpleEnv(seed, dtype=dtype) for seed in range(3))), 3
    )
    environment.reset(), [one.reset() for one in alone]
    rng, resetting = np.random.default_rng(0), [False] * 3
    for _ in range(100):
        actions = rng.integers(0, 100, (3, 3, 8)).astype(dtype)
        step = environment.step(actions)
        for slot, one in enumerate(alone):
            if resetting[slot]:
                (value, _), rest = one.reset(), (0, False)
            else:
                value, *rest = one.step(actions[slot])[:3]
            np.testing.assert_array_equal(step.observation[slot], value)
            assert step.reward[slot] == np.float32(rest[0])
            assert step.terminated[slot] == rest[1]
            resetting[slot] = rest[1]
