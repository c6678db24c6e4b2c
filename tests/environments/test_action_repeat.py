import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from small_environments import CountEnv

from distrl.environments.action_repeat import ActionRepeat
from distrl.environments.serial_vector_environment import SerialVectorEnvironment


def test_repeats_sums_and_shows_the_last():
    environment = ActionRepeat(CountEnv(max_count=7), 3)
    environment.reset()
    assert environment.step(5)[:4] == (3, 15.0, False, False)
    assert environment.step(2)[:4] == (6, 6.0, False, False)
    assert environment.step(4)[:4] == (7, 4.0, True, False)  # ended at the first
    assert environment.unwrapped.count == 7


@pytest.mark.parametrize("inside", [True, False])
def test_time_limit(inside):
    environment = CountEnv(max_count=100)
    if inside:
        environment = ActionRepeat(TimeLimit(environment, 5), 3)
    else:
        environment = TimeLimit(ActionRepeat(environment, 3), 2)
    environment.reset()
    environment.step(1)
    observation, reward, terminated, truncated, _ = environment.step(1)
    assert (terminated, truncated) == (False, True)
    assert (observation, reward) == ((5, 2.0) if inside else (6, 3.0))


def test_in_a_vector_environment():
    class Repeated(ActionRepeat):
        def __init__(self):
            super().__init__(CountEnv(4), 2)

    environment = SerialVectorEnvironment(Repeated, 2)
    environment.reset()
    environment.step(np.array([1, 2]))
    step = environment.step(np.array([1, 2]))
    assert step.observation.tolist() == [4, 4] and step.terminated.all()
    assert step.info["episode_return"].tolist() == [4.0, 8.0]
    assert step.info["episode_length"].tolist() == [2, 2]


def test_stays_in_the_registration():
    environment = ActionRepeat(gymnasium.make("CartPole-v1"), 2)
    assert environment.spec.additional_wrappers[-1].kwargs == {"num_repeats": 2}


def test_bad_number():
    with pytest.raises(ValueError, match="num_repeats.*0"):
        ActionRepeat(CountEnv(), 0)
    functools.partial(ActionRepeat, num_repeats=1)(CountEnv()).close()
