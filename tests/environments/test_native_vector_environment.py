import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode

from distrl.core.errors import ConfigError
from distrl.environments.gymnasium_environments import gymnasium_environment
from distrl.environments.native_vector_environment import NativeVectorEnvironment
from distrl.environments.serial_vector_environment import SerialVectorEnvironment

N = 4


def cartpole():
    return gymnasium_environment("CartPole-v1")


def with_states_of(native, serial):
    """Puts the serial environments' states into the native one."""
    states = [each.unwrapped.state for each in serial._environments]
    native._environment.state = np.array(states, np.float64).T


def test_same_dynamics_and_ends_as_serial_cartpole():
    native, serial = NativeVectorEnvironment("CartPole-v1", N), None
    serial = SerialVectorEnvironment(cartpole, N, seeds=range(N))
    assert native.spec == serial.spec
    native.reset(), serial.reset()
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
    observation, steps = environment.reset(), []
    for _ in range(502):
        actions = (observation @ np.array([0.1, 0.5, 3.0, 1.0]) > 0).astype(np.int64)
        steps.append(environment.step(actions))
        observation = steps[-1].observation
    return steps


@pytest.mark.parametrize(
    "make",
    [
        lambda: NativeVectorEnvironment("CartPole-v1", 2, seeds=[1, 2]),
        lambda: SerialVectorEnvironment(cartpole, 2, seeds=[1, 2]),
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
    first = NativeVectorEnvironment("CartPole-v1", 3, seeds=[1, 2, 3])
    observation = first.reset()
    assert len(set(observation[:, 0].tolist())) == 3
    assert observation.flags.c_contiguous
    other = NativeVectorEnvironment("CartPole-v1", 3)
    np.testing.assert_array_equal(other.reset([1, 2, 3]), observation)
    np.testing.assert_array_equal(other.reset(), first.reset())
    assert (other.reset([1, 2, 4]) != observation).any()


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
    environment = NativeVectorEnvironment("Reusing-v0", 2, seeds=[1, 2])
    first = environment.reset()
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
    with pytest.raises(RuntimeError, match="not reset"):
        environment.step(np.zeros(2, np.int64))
    environment.close()
    environment.close()
    with pytest.raises(RuntimeError, match="closed"):
        environment.reset()
    with pytest.raises(ValueError, match="expected 2 seeds, got 1"):
        NativeVectorEnvironment("CartPole-v1", 2, seeds=[1])
