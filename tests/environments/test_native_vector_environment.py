import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from small_environments import CountEnv

from distrl.core.errors import ConfigError
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.gymnasium_environments import gymnasium_environment
from distrl.environments.gymnasium_vector_environment import (
    GymnasiumVectorEnvironment,
)
from distrl.environments.native_vector_environment import NativeVectorEnvironment
from distrl.environments.serial_vector_environment import SerialVectorEnvironment

N = 4
SEEDS = EnvironmentSeeds(0, "actor", 0)


def cartpole():
    return gymnasium_environment("CartPole-v1")


def with_states_of(native, serial):
    """Puts the serial environments' states into the native one."""
    states = [each.unwrapped.state for each in serial._slots.environments]
    native._environment.state = np.array(states, np.float64).T


def test_same_dynamics_and_ends_as_serial_cartpole():
    native, serial = NativeVectorEnvironment("CartPole-v1", N), None
    serial = SerialVectorEnvironment(cartpole, N)
    assert native.spec == serial.spec
    native.reset(), serial.reset(seed=0)
    with_states_of(native, serial)
    rng = np.random.default_rng(0)
    num_ended, resetting = 0, np.zeros(N, bool)
    for _ in range(120):
        actions = rng.integers(0, 2, N)
        ours, theirs = native.step(actions), serial.step(actions)
        kept = ~resetting
        np.testing.assert_allclose(
            ours.observation[kept], theirs.observation[kept], atol=1e-5
        )
        for name in ("reward", "terminated", "truncated"):
            a, b = getattr(ours, name), getattr(theirs, name)
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
        assert ours.info.keys() == theirs.info.keys()
        for key in ours.info:
            np.testing.assert_array_equal(ours.info[key], theirs.info[key])
        with_states_of(native, serial)  # their resets draw from other streams
        resetting = ours.terminated | ours.truncated
        num_ended += resetting.sum()
    assert num_ended > N


def balance(environment):
    """Steps of a policy that never falls, up to the first end and two more."""
    (observation, _), steps = environment.reset(), []
    for _ in range(502):
        actions = (observation @ np.array([0.1, 0.5, 3.0, 1.0]) > 0).astype(np.int64)
        steps.append(environment.step(actions))
        observation = steps[-1].observation
    return steps


@pytest.mark.parametrize(
    "make",
    [
        lambda: NativeVectorEnvironment("CartPole-v1", 2, SEEDS),
        lambda: SerialVectorEnvironment(cartpole, 2, SEEDS),
    ],
    ids=["native", "serial"],
)
def test_truncation_at_500_steps(make):
    steps = balance(make())
    assert not any((step.terminated | step.truncated).any() for step in steps[:499])
    assert steps[499].truncated.all() and not steps[499].terminated.any()
    assert steps[499].info["episode_return"].tolist() == [500.0, 500.0]
    assert steps[499].info["episode_length"].tolist() == [500, 500]
    assert steps[500].reward.tolist() == [0.0, 0.0] and not steps[500].truncated.any()
    assert np.abs(steps[500].observation).max() <= 0.05
    assert steps[501].reward.tolist() == [1.0, 1.0]


def test_seeds():
    first = NativeVectorEnvironment("CartPole-v1", 3, SEEDS)
    observation, _ = first.reset()
    assert len(set(observation[:, 0].tolist())) == 3
    assert observation.flags.c_contiguous
    other = NativeVectorEnvironment("CartPole-v1", 3)
    seeds = [SEEDS.of(slot) for slot in range(3)]
    np.testing.assert_array_equal(other.reset(seeds)[0], observation)
    again, _ = first.reset()
    np.testing.assert_array_equal(other.reset()[0], again)
    assert (again != observation).all()  # the streams go on
    np.testing.assert_array_equal(other.reset(5)[0], first.reset([5, 6, 7])[0])
    assert (other.reset([*seeds[:2], 4])[0] != observation).any()


class Reusing(CartPoleVectorEnv):
    """Gives out the same arrays again and again."""

    def _same(self, name, array):
        if not hasattr(self, name):
            setattr(self, name, array)
        getattr(self, name)[...] = array
        return getattr(self, name)

    def reset(self, **kwargs):
        observation, info = super().reset(**kwargs)
        return self._same("o", observation), info

    def step(self, action):
        names = ("o", "r", "e", "t")
        *arrays, info = super().step(action)
        return *map(self._same, names, arrays), info


class Disabled(CartPoleVectorEnv):
    metadata = {"autoreset_mode": AutoresetMode.DISABLED}


@pytest.fixture
def registered():
    names = {"Reusing-v0": Reusing, "Disabled-v0": Disabled}
    for name, entry in names.items():
        gymnasium.register(name, vector_entry_point=entry, max_episode_steps=3)
    yield
    for name in names:
        del gymnasium.registry[name]


def test_arrays_are_our_own(registered):
    environment = NativeVectorEnvironment("Reusing-v0", 2, SEEDS)
    first, _ = environment.reset()
    kept = first.copy()
    steps = [environment.step(np.array([0, 1])) for _ in range(5)]
    np.testing.assert_array_equal(first, kept)
    assert [step.truncated.all() for step in steps] == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert [step.reward.sum() for step in steps] == [2, 2, 2, 0, 2]
    assert (steps[0].observation != steps[1].observation).any()


def test_other_autoreset_modes_are_refused(registered):
    with pytest.raises(ConfigError, match="Disabled-v0.*SerialVectorEnvironment"):
        NativeVectorEnvironment("Disabled-v0", 2)


def test_environments_without_vector_implementation_are_refused():
    with pytest.raises(ConfigError, match="MountainCar-v0.*SerialVectorEnvironment"):
        NativeVectorEnvironment("MountainCar-v0", 2)


def test_close_and_misuse():
    environment = NativeVectorEnvironment("CartPole-v1", 2)
    with pytest.raises(ResetNeeded):
        environment.step(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="expected 2 seeds, got 1"):
        environment.reset([1])
    environment.reset()
    with pytest.raises(ValueError, match="expected 2 actions, got 3"):
        environment.step(np.zeros(3, np.int64))
    environment.close()
    environment.close()
    with pytest.raises(ClosedEnvironmentError):
        environment.reset()
    with pytest.raises(ValueError, match="num_envs.*0"):
        NativeVectorEnvironment("CartPole-v1", 0)


def test_one_program_answers_for_all_slots():
    environment = NativeVectorEnvironment("CartPole-v1", 2)
    environment.reset()
    assert environment.get_attr("gravity") == environment.call("gravity") == [9.8, 9.8]
    with pytest.raises(NotImplementedError, match="gravity"):
        environment.set_attr("gravity", 1.0)
    with pytest.raises(AttributeError, match="nothing"):
        environment.get_attr("nothing")


@pytest.fixture
def two_counts():
    """Gymnasium's own vector environment of two, below one of its wrappers."""
    factories = [functools.partial(CountEnv, n, False, "rgb_array") for n in (2, 3)]
    return RecordEpisodeStatistics(SyncVectorEnv(factories))


def test_vector_environments_of_gymnasium(two_counts):
    environment = GymnasiumVectorEnvironment(two_counts, keep_infos=True)
    environment.reset()
    steps = [environment.step(np.array([1, 2])) for _ in range(6)]
    shown = [step.observation.tolist() for step in steps]
    assert shown == [[1, 1], [2, 2], [0, 3], [1, 0], [2, 1], [0, 2]]
    for k, slot, length in ((1, 0, 2), (2, 1, 3), (4, 0, 2)):
        info = steps[k].info
        assert info["_episode_return"].tolist() == [slot == 0, slot == 1]
        assert info["episode_length"][slot] == info["episode"]["l"][slot] == length
        assert info["episode_return"][slot] == info["episode"]["r"][slot]
    assert not steps[3].info


def test_calls_pass_the_wrappers_of_gymnasium(two_counts):
    environment = GymnasiumVectorEnvironment(two_counts)
    environment.reset()
    environment.step(np.array([0, 0]))
    assert environment.call("add", 4) == [5, 5]
    environment.set_attr("max_count", [8, 9])
    assert environment.get_attr("max_count") == [8, 9]
    frames = environment.render()
    assert frames.shape == (2, 2, 2, 3) and (frames == 1).all()
    environment.close()
    assert [one.closed for one in two_counts.unwrapped.envs] == [1, 1]


def test_reset_of_some_slots_leaves_the_totals_of_the_others(two_counts):
    environment = GymnasiumVectorEnvironment(two_counts.env)
    environment.reset()
    environment.step(np.array([1, 1]))
    options = {"reset_mask": np.array([True, False])}
    observation, _ = environment.reset(options=options)
    assert observation.tolist() == [0, 1] and "reset_mask" in options
    steps = [environment.step(np.array([1, 1])) for _ in range(2)]
    assert steps[1].info["episode_length"].tolist() == [2, 3]
    assert steps[1].info["episode_return"].tolist() == [2, 3]


def test_what_is_no_vector_environment_is_refused(two_counts):
    with pytest.raises(TypeError, match="VectorEnv.*CountEnv"):
        GymnasiumVectorEnvironment(CountEnv())
    other = SyncVectorEnv([CountEnv], autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ConfigError, match="SAME_STEP, not NEXT_STEP"):
        GymnasiumVectorEnvironment(other)
