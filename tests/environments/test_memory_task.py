"""The cue task: what is seen when, what pays, and that only memory helps."""

from __future__ import annotations

import functools
import pickle
import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.memory_task import CueTask
from distrl.environments.serial_vector_environment import SerialVectorEnvironment

pytestmark = pytest.mark.timeout(60)


def cue_of(observation):
    """What the first observation of an episode says."""
    assert observation[-2:].tolist() == [1, 0] and observation.sum() == 2
    return int(observation[:-2].argmax())


def episode(environment, policy, seed=None):
    """All observations and rewards of an episode; `policy(observations so far)`."""
    observation, info = environment.reset(seed=seed)
    observations, rewards, ended = [observation], [], False
    while not ended:
        assert info == {} and environment.observation_space.contains(observation)
        observation, reward, ended, truncated, info = environment.step(
            policy(observations)
        )
        assert not truncated
        observations.append(observation)
        rewards.append(reward)
    return np.array(observations), rewards


def remember(observations):
    return cue_of(observations[0])


@pytest.mark.parametrize(("num_cues", "delay"), [(2, 10), (2, 0), (5, 1), (3, 7)])
def test_who_remembers_succeeds_always(num_cues, delay):
    environment, cues = CueTask(num_cues, delay), []
    for _ in range(20 * num_cues):
        observations, rewards = episode(environment, remember)
        assert rewards == [0.0] * (delay + 1) + [1.0]
        assert observations.shape == (delay + 3, num_cues + 2)
        assert observations.dtype == np.float32
        cues.append(cue_of(observations[0]))
    assert set(cues) == set(range(num_cues))


def test_only_the_answer_pays():
    environment = CueTask(num_cues=3, delay=4)

    def wrong_at_last(observations):
        right = cue_of(observations[0])
        return (right + (len(observations) == 6)) % 3

    def right_at_last(observations):
        right = cue_of(observations[0])
        return (right + (len(observations) != 6)) % 3

    for _ in range(10):
        assert episode(environment, wrong_at_last)[1] == [0.0] * 6
        assert episode(environment, right_at_last)[1] == [0.0] * 5 + [1.0]


def test_defaults():
    observations, rewards = episode(CueTask(), remember)
    assert len(rewards) == 12 and observations.shape[1] == 4


def observations_by_cue(num_episodes=3000):
    """float32 [num_episodes, steps + 1, ...] and int [num_episodes]."""
    environment = CueTask(num_cues=2, delay=3)
    environment.reset(seed=0)
    seen = np.array([episode(environment, lambda _: 0)[0] for _ in range(num_episodes)])
    return seen, np.array([cue_of(first) for first in seen[:, 0]])


def test_nothing_behind_the_first_observation_tells_the_cue():
    """So a policy of the present observation succeeds in one of two, whatever it is."""
    seen, cues = observations_by_cue()
    assert abs(cues.mean() - 0.5) < 0.05  # 5 standard deviations
    question, last = seen[:, 4], seen[:, 5]
    np.testing.assert_array_equal(question, [[0, 0, 0, 1]] * len(cues))
    np.testing.assert_array_equal(last, np.zeros((len(cues), 4)))
    distractions = seen[:, 1:4]
    np.testing.assert_array_equal(distractions[..., 2:], 0)
    noise = distractions[..., :2].reshape(len(cues), -1)  # 6 numbers, uniform
    assert len(np.unique(noise)) > 0.99 * noise.size
    below = noise[:, :, None] < np.linspace(0.1, 0.9, 9)  # the distribution function
    assert abs(below.mean(0) - np.linspace(0.1, 0.9, 9)).max() < 0.05
    assert abs(below[cues == 0].mean(0) - below[cues == 1].mean(0)).max() < 0.1
    off_diagonal = np.corrcoef(noise.T) - np.eye(6)
    assert abs(off_diagonal).max() < 0.1
    assert abs(np.corrcoef(noise[1:, 0], noise[:-1, 0])[0, 1]) < 0.1


def test_what_is_done_changes_nothing_that_is_seen():
    environment = CueTask(num_cues=3)
    random = np.random.default_rng(0)
    first, _ = episode(environment, lambda _: 0, seed=7)
    for _ in range(3):
        other, _ = episode(environment, lambda _: random.integers(3), seed=7)
        np.testing.assert_array_equal(other, first)


def test_seeds_decide():
    runs = []
    for seed in (3, 3, 4):
        environment = CueTask()
        first, _ = episode(environment, remember, seed)
        second, _ = episode(environment, remember)
        runs.append(np.concatenate([first, second]))
        assert (first != second).any()
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


def test_each_observation_is_an_array_of_its_own():
    observations, _ = episode(CueTask(delay=2), remember, seed=0)
    environment = CueTask(delay=2)
    kept = [environment.reset(seed=0)[0]]
    kept += [environment.step(0)[0] for _ in range(4)]
    np.testing.assert_array_equal(kept, observations)


@pytest.mark.parametrize("delay", [0, 10])
def test_gymnasium_finds_nothing_wrong(delay):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It would be told of a registered environment only.
        warnings.filterwarnings("ignore", message=".*spec.*")
        check_env(CueTask(delay=delay), skip_render_check=True)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"num_cues": 1}, "num_cues must be at least 2, got 1"),
        ({"delay": -1}, "delay must be at least 0, got -1"),
    ],
)
def test_bad_numbers_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        CueTask(**numbers)


def test_bad_steps_are_refused():
    environment = CueTask(delay=0)
    with pytest.raises(RuntimeError, match="reset"):
        environment.step(0)
    environment.reset(seed=0)
    for action in (2, -1, 0.5):
        with pytest.raises(ValueError, match=f"expected a cue below 2, got {action}"):
            environment.step(action)
    environment.step(np.int64(0))
    assert environment.step(np.int64(0))[2]
    with pytest.raises(RuntimeError, match="reset"):
        environment.step(0)


def test_environments_and_factories_travel():
    factory = pickle.loads(pickle.dumps(functools.partial(CueTask, delay=3)))
    environment = factory()
    environment.reset(seed=5)
    environment.step(0)
    twin = pickle.loads(pickle.dumps(environment))
    for _ in range(4):
        mine, other = environment.step(1), twin.step(1)
        np.testing.assert_array_equal(mine[0], other[0])
        assert mine[1:] == other[1:]


def test_success_rates_are_mean_returns():
    """In a vector environment: that of a fixed answer is 1 in `num_cues`."""
    factory = functools.partial(CueTask, num_cues=4, delay=2)
    environment = SerialVectorEnvironment(factory, 8, EnvironmentSeeds(0, "actor", 0))
    environment.reset()
    returns, lengths = [], []
    for _ in range(500):
        info = environment.step(np.full(8, 3)).info
        if "episode_return" in info:
            returns += info["episode_return"][info["_episode_return"]].tolist()
            lengths += info["episode_length"][info["_episode_return"]].tolist()
    environment.close()
    assert len(returns) == 800 and set(lengths) == {4}
    assert abs(np.mean(returns) - 0.25) < 0.08  # 5 standard deviations
