"""Greedy evaluation: every slot plays its share, whatever its episodes' length."""

import numpy as np
import pytest

from distrl.agents.evaluation import greedy_returns
from distrl.environments.vector_environment import VectorStep


class Clockwork:
    """Slot e ends an episode every `lengths[e]` steps; its k-th returns 100·e + k."""

    def __init__(self, lengths):
        self.lengths = np.asarray(lengths)
        self.num_envs = len(lengths)
        self.time = 0
        self.actions = []

    def reset(self):
        self.time = 0
        return np.zeros(self.num_envs), {}

    def step(self, actions):
        self.actions.append(actions)
        self.time += 1
        ended = self.time % self.lengths == 0
        info = {}
        if ended.any():
            number = self.time // self.lengths
            returns = np.where(ended, 100.0 * np.arange(self.num_envs) + number, np.nan)
            info = {"_episode_return": ended, "episode_return": returns}
        observation = np.full(self.num_envs, float(self.time))
        zeros = np.zeros(self.num_envs)
        return VectorStep(observation, zeros, ended, zeros > 0, info)


def play(environment, episodes, **arguments):
    return greedy_returns(
        environment, lambda obs, began: obs + 1, episodes, **arguments
    )


def test_each_slot_plays_its_share_however_short_its_episodes():
    returns = play(Clockwork([1, 5, 3]), 6)
    assert sorted(returns) == [1, 2, 101, 102, 201, 202]


def test_what_does_not_divide_goes_to_the_first_slots():
    assert sorted(play(Clockwork([2, 1, 1]), 5)) == [1, 2, 101, 102, 201]


def test_fewer_episodes_than_slots():
    assert play(Clockwork([4, 1, 1]), 1) == [1]


def test_actions_are_those_of_the_newest_observation():
    environment = Clockwork([3])
    play(environment, 1)
    np.testing.assert_array_equal(environment.actions, [[1], [2], [3]])


def test_the_policy_is_told_where_episodes_begin():
    """Behind an end comes the last observation of the episode, then a new one."""
    seen = []

    def act(observation, began):
        seen.append(began.tolist())
        return observation

    greedy_returns(Clockwork([4, 9]), act, 4)
    first, second = zip(*seen, strict=True)
    assert [step for step, began in enumerate(first) if began] == [0, 5, 9, 13, 17]
    assert [step for step, began in enumerate(second) if began] == [0, 10]


@pytest.mark.parametrize("steps", [0, 3])
def test_a_stop_gives_nothing(steps):
    environment = Clockwork([5])
    stopped = play(environment, 1, stop=lambda: environment.time >= steps)
    assert stopped is None and environment.time == steps
