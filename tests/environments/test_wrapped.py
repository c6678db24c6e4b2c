import functools
import pickle

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from small_environments import CountEnv

from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.action_repeat import ActionRepeat
from distrl.environments.frame_stack import FrameStack
from distrl.environments.reward_clip import RewardClip
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)
from distrl.environments.wrapped import wrapped

REPEATED = wrapped(
    functools.partial(CountEnv, 9),
    [
        functools.partial(ActionRepeat, num_repeats=2),
        functools.partial(TimeLimit, max_episode_steps=3),
    ],
)


def test_first_wrapper_is_the_innermost_and_it_travels():
    for factory in (REPEATED, pickle.loads(pickle.dumps(REPEATED))):
        environment = factory()
        assert isinstance(environment, TimeLimit)
        assert isinstance(environment.env, ActionRepeat)
        environment.reset()
        seen = [environment.step(1) for _ in range(3)]
        assert [step[0] for step in seen] == [2, 4, 6]
        assert [step[3] for step in seen] == [False, False, True]


@pytest.mark.timeout(60)
def test_in_processes():
    with SharedMemoryVectorEnvironment(REPEATED, 2) as environment:
        environment.reset()
        assert environment.step(np.array([1, 3])).reward.tolist() == [2.0, 6.0]


def test_vector_environments_with_their_arguments():
    factory = wrapped(
        functools.partial(SerialVectorEnvironment, REPEATED),
        [RewardClip, functools.partial(FrameStack, num_stacked=2)],
    )
    environment = factory(2, seeds=EnvironmentSeeds(0, "actor", 0))
    assert isinstance(environment, FrameStack) and environment.num_envs == 2
    environment.reset()
    step = environment.step(np.array([5, 0]))
    assert step.observation.tolist() == [[0, 2], [0, 2]]
    assert step.reward.tolist() == [1.0, 0.0]


def test_closes_what_was_made_when_a_wrapper_raises():
    made = []

    def factory():
        made.append(CountEnv())
        return made[-1]

    with pytest.raises(ValueError, match="num_repeats"):
        wrapped(factory, [functools.partial(ActionRepeat, num_repeats=0)])()
    assert made[0].closed == 1


def test_refuses_instances():
    with pytest.raises(TypeError, match="CountEnv"):
        wrapped(CountEnv(), [])
    with pytest.raises(TypeError, match="got 3"):
        wrapped(CountEnv, [3])
