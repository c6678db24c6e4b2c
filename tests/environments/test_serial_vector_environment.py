import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import ArraySpec
from distrl.environments.serial_vector_environment import SerialVectorEnvironment


class Counting(gymnasium.Env):
    """Shows the number of steps of the episode, in an array that it uses again."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)

    def __init__(self, end=3, truncate=False, reward=0.1):
        self.action_space = spaces.Discrete(2)
        self._end, self._truncate, self._reward = end, truncate, reward
        self._shown = np.zeros(1, np.float32)
        self.closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._shown[0] = 0
        return self._shown, {}

    def step(self, action):
        self._shown[0] += 1
        ended = bool(self._shown[0] == self._end)
        flags = (False, ended) if self._truncate else (ended, False)
        return self._shown, self._reward, *flags, {}

    def close(self):
        self.closed += 1


class Returns(gymnasium.Env):
    """Shows what it is told to show: first at the reset, then at every step."""

    def __init__(self, space, first, then=None):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self._first, self._then = first, first if then is None else then

    def reset(self, *, seed=None, options=None):
        return self._first, {}

    def step(self, action):
        return self._then, 0.0, False, False, {}


def in_turn(*environments):
    """A factory that gives out these."""
    return functools.partial(next, iter(environments))


def zeros(environment):
    return np.zeros(environment.num_envs, np.int64)


@pytest.mark.parametrize("truncate", [False, True])
def test_next_step_autoreset(truncate):
    with SerialVectorEnvironment(lambda: Counting(3, truncate), 1) as environment:
        seen = [float(environment.reset()[0][0, 0])]
        rewards, ends = [], []
        for _ in range(8):
            step = environment.step(zeros(environment))
            seen.append(float(step.observation[0, 0]))
            rewards.append(step.reward[0])
            ends.append(bool((step.truncated if truncate else step.terminated)[0]))
            assert not (step.terminated if truncate else step.truncated)[0]
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert ends == [False, False, True, False, False, False, True, False]
    np.testing.assert_allclose(rewards, np.float32([0.1, 0.1, 0.1, 0] * 2))
    assert step.reward.dtype == np.float32 and step.terminated.dtype == bool


def test_slots_end_on_their_own():
    environment = SerialVectorEnvironment(in_turn(Counting(2), Counting(3)), 2)
    environment.reset()
    seen = [environment.step(zeros(environment)).observation[:, 0] for _ in range(4)]
    np.testing.assert_array_equal(seen, [[1, 1], [2, 2], [0, 3], [1, 0]])


def test_episode_statistics_only_where_an_episode_ended():
    environment = SerialVectorEnvironment(in_turn(Counting(2), Counting(3)), 2)
    environment.reset()
    infos = [environment.step(zeros(environment)).info for _ in range(7)]
    assert [bool(info) for info in infos] == [0, 1, 1, 0, 1, 0, 1]
    assert infos[1]["_episode_return"].tolist() == [True, False]
    assert infos[2]["_episode_return"].tolist() == [False, True]
    assert infos[2]["episode_return"][1] == pytest.approx(0.3, abs=1e-12)
    assert infos[1]["episode_length"].tolist() == [2, 0]
    assert infos[4]["episode_length"][0] == 2 and infos[6]["episode_length"][1] == 3
    assert infos[4]["episode_return"][0] == pytest.approx(0.2, abs=1e-12)


def test_reset_forgets_the_running_episode():
    environment = SerialVectorEnvironment(lambda: Counting(2), 1)
    for _ in range(2):
        environment.reset()
        environment.step(zeros(environment))
    assert environment.step(zeros(environment)).info["episode_length"] == [2]


class Lives(gymnasium.Wrapper):
    """Every episode is told as an end; every second one is a real one."""

    reports_episodes = True
    ends = 0

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.ends += terminated
        if terminated and self.ends % 2 == 0:
            info["episode"] = {"r": 77.0, "l": 4}
        return observation, reward, terminated, truncated, info


def test_what_the_environment_reports_goes_first():
    environment = SerialVectorEnvironment(
        in_turn(Lives(Counting(2)), Counting(2)), num_envs=2
    )
    environment.reset()
    infos = [environment.step(zeros(environment)).info for _ in range(5)]
    assert infos[1]["_episode_return"].tolist() == [False, True]
    assert infos[4]["_episode_return"].tolist() == [True, True]
    assert infos[4]["episode_return"].tolist() == [77.0, pytest.approx(0.2)]
    assert infos[4]["episode_length"].tolist() == [4, 2]


def test_record_episode_statistics_of_gymnasium_is_heard():
    def factory():
        raw = gymnasium.wrappers.RecordEpisodeStatistics(Counting(2, reward=5.0))
        return gymnasium.wrappers.TransformReward(raw, np.sign)

    environment = SerialVectorEnvironment(factory, 1)
    environment.reset()
    steps = [environment.step(zeros(environment)) for _ in range(2)]
    assert steps[1].reward == [1.0] and steps[1].info["episode_return"] == [10.0]


def test_returned_arrays_are_never_written_again():
    environment = SerialVectorEnvironment(lambda: Counting(3), 2)
    kept, _ = environment.reset()
    steps = [environment.step(zeros(environment)) for _ in range(6)]
    copies = [[np.copy(part) for part in step[:4]] for step in steps]
    infos = [{key: value.copy() for key, value in step.info.items()} for step in steps]
    for _ in range(6):
        environment.step(zeros(environment))
    assert kept.tolist() == [[0], [0]]
    for step, copy, info in zip(steps, copies, infos, strict=True):
        for now, before in zip(step[:4], copy, strict=True):
            np.testing.assert_array_equal(now, before)
        for key in info:
            np.testing.assert_array_equal(step.info[key], info[key])


NESTED = spaces.Dict(
    a=spaces.Box(0, 255, (2,), np.uint8),
    b=spaces.Tuple([spaces.Discrete(9), spaces.MultiBinary(3)]),
)


def test_nested_observations_with_keys_in_another_order():
    value = {"b": (7, np.array([0, 1, 0], np.int8)), "a": np.array([3, 4], np.uint8)}
    environment = SerialVectorEnvironment(lambda: Returns(NESTED, value), 2)
    for observation in (environment.reset()[0], environment.step([0, 0]).observation):
        assert observation["a"].tolist() == [[3, 4]] * 2
        assert observation["b"][0].tolist() == [7, 7]
        assert observation["b"][0].dtype == np.int64
        assert observation["b"][1].tolist() == [[0, 1, 0]] * 2
    assert environment.spec.observation["a"] == ArraySpec((2,), "uint8", 0, 255)


GOOD = {"a": np.zeros(2, np.uint8), "b": (1, np.zeros(3, np.int8))}


@pytest.mark.parametrize(
    "bad, leaf",
    [
        ({"a": GOOD["a"]}, "'b/0'"),
        ({**GOOD, "b": (1,)}, "'b/1'"),
        ({**GOOD, "a": np.zeros(1, np.uint8)}, "'a'"),  # would broadcast
    ],
)
def test_wrong_observation_at_reset_and_step(bad, leaf):
    at_reset = in_turn(Returns(NESTED, GOOD), Returns(NESTED, bad))
    with pytest.raises(ValueError, match=f"environment 1 of 2.*leaf {leaf}.*expected"):
        SerialVectorEnvironment(at_reset, 2).reset()
    at_step = in_turn(Returns(NESTED, GOOD), Returns(NESTED, GOOD, bad))
    environment = SerialVectorEnvironment(at_step, 2)
    environment.reset()
    with pytest.raises(ValueError, match=f"environment 1 of 2.*leaf {leaf}.*expected"):
        environment.step([0, 0])


def test_wrong_bare_observations():
    space = spaces.Box(0, 1, (4,))
    good = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match=r"float32\[4\], got float64\[4\]"):
        SerialVectorEnvironment(lambda: Returns(space, np.zeros(4)), 1).reset()
    for bad in (np.zeros(1, np.float32), np.float32(0), (good, good)):
        environment = SerialVectorEnvironment(
            functools.partial(Returns, space, good, bad), 1
        )
        environment.reset()
        with pytest.raises(ValueError, match=r"float32\[4\], got"):
            environment.step([0])


class Random(Counting):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(size=1).astype(np.float32), {}


SEEDS = EnvironmentSeeds(0, "actor", 0)


def test_seeds_differ_by_slot_and_repeat():
    first, second = (SerialVectorEnvironment(Random, 3, SEEDS) for _ in range(2))
    observation, _ = first.reset()
    assert len(set(observation[:, 0].tolist())) == 3
    again, _ = first.reset()
    assert (again != observation).all()  # the streams go on
    np.testing.assert_array_equal(second.reset()[0], observation)
    np.testing.assert_array_equal(second.reset()[0], again)
    np.testing.assert_array_equal(
        first.reset([SEEDS.of(slot) for slot in (2, 1, 0)])[0], observation[::-1]
    )


def test_seeds_of_reset_go_before_those_of_the_constructor():
    environment = SerialVectorEnvironment(Random, 3, SEEDS)
    by_list, _ = environment.reset([7, 8, 9])
    np.testing.assert_array_equal(environment.reset(7)[0], by_list)
    np.testing.assert_array_equal(environment.reset(np.array([7, 8, 9]))[0], by_list)
    alone = Random().reset(seed=8)[0]
    np.testing.assert_array_equal(by_list[1], alone)
    partly, _ = environment.reset([None, 8, None])
    np.testing.assert_array_equal(partly[1], alone)
    assert (partly[::2] != by_list[::2]).all()
    # Without a seed the stream of the slot goes on: it is not seeded again.
    assert (environment.reset()[0] != partly).all()


def test_action_spaces_are_seeded():
    def samples(task):
        inner, seeds = Counting(), EnvironmentSeeds(0, "actor", task)
        SerialVectorEnvironment(lambda: inner, 1, seeds).reset()
        return [int(inner.action_space.sample()) for _ in range(64)]

    assert samples(1) == samples(1) != samples(2)


def test_close_is_idempotent_and_complete():
    class Stuck(Counting):
        def close(self):
            raise OSError("stuck")

    last = Counting()
    environment = SerialVectorEnvironment(in_turn(Stuck(), last), 2)
    environment.reset()
    with pytest.raises(OSError, match="^stuck$") as caught:
        environment.close()
    assert caught.value.environment_index == 0
    assert "environment 0 of 2, in close" in str(caught.value.__cause__)
    environment.close()
    assert last.closed == 1


def test_misuse():
    with pytest.raises(ValueError, match="num_envs.*0"):
        SerialVectorEnvironment(Counting, 0)
    with pytest.raises(TypeError, match="non-callable Counting"):
        SerialVectorEnvironment(Counting(), 2)
    with pytest.raises(TypeError, match="gymnasium.Env.*<class 'object'>"):
        SerialVectorEnvironment(lambda: object, 2)
    environment = SerialVectorEnvironment(Counting, 2)
    with pytest.raises(ValueError, match="expected 2 seeds, got 3"):
        environment.reset([1, 2, 3])
    environment.reset()
    for actions in ([0, 0, 0], [0]):
        with pytest.raises(ValueError, match=f"2 actions, got {len(actions)}"):
            environment.step(actions)
    assert environment.step([0, 0]).observation.tolist() == [[1], [1]]  # none stepped
