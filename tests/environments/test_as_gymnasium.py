"""distrl's vector environments against Gymnasium's own SyncVectorEnv."""

import functools
import warnings

import gymnasium
import numpy as np
import optree
import pytest
from gymnasium.error import ClosedEnvironmentError
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.utils.env_match import check_environments_match
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics
from small_environments import CountEnv, FailingEnv, NestedEnv, SeededEnv

from distrl.environments.as_gymnasium import as_gymnasium
from distrl.environments.atari import atari_environment
from distrl.environments.gymnasium_environments import gymnasium_environment
from distrl.environments.gymnasium_vector_environment import (
    GymnasiumVectorEnvironment,
)
from distrl.environments.native_vector_environment import NativeVectorEnvironment
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.slot_records import SlotSettings

N = 3
cartpole = functools.partial(gymnasium_environment, "CartPole-v1")
OWN_KEYS = ("episode_return", "episode_length", "_episode_return")


def ours(factory, mode=AutoresetMode.NEXT_STEP, num_envs=N):
    settings = SlotSettings(mode, keep_infos=True)
    return as_gymnasium(SerialVectorEnvironment(factory, num_envs, settings=settings))


def theirs(factory, mode=AutoresetMode.NEXT_STEP, num_envs=N):
    return SyncVectorEnv([factory] * num_envs, autoreset_mode=mode)


def assert_same(got, expected):
    """Equal nests: keys, dtypes, shapes and values."""
    assert data_equivalence(got, expected, exact=True), (got, expected)


def without_own(info):
    return {key: value for key, value in info.items() if key not in OWN_KEYS}


@pytest.mark.parametrize("factory", [cartpole, NestedEnv, SeededEnv])
def test_all_that_can_be_seen_equals_sync_vector_env(factory):
    a, b = ours(factory), theirs(factory)
    for name in ("observation_space", "action_space"):
        assert getattr(a, name) == getattr(b, name)
        assert getattr(a, f"single_{name}") == getattr(b, f"single_{name}")
    assert a.num_envs == N and a.metadata == b.metadata and a.spec is None
    assert (a.render_mode, a.closed) == (b.render_mode, b.closed)
    (mine, infos), (their, their_infos) = a.reset(seed=5), b.reset(seed=5)
    assert_same(mine, their)
    assert_same(infos, their_infos)
    a.action_space.seed(7), b.action_space.seed(7)
    ends = 0
    for _ in range(200):
        actions = a.action_space.sample()
        assert_same(actions, b.action_space.sample())
        mine, their = a.step(actions), b.step(actions)
        assert mine[0] in a.observation_space
        assert_same(mine[0], their[0])
        for got, expected in zip(mine[1:4], their[1:4], strict=True):
            np.testing.assert_array_equal(got, expected)
            assert got.dtype == expected.dtype
        assert_same(without_own(mine[4]), their[4])
        ends += (mine[2] | mine[3]).sum()
    assert ends > 2 * N


def test_the_nested_environment_sees_what_it_is_sent():
    """The equality above has something to find: a bit of an action shows."""
    a, b = ours(NestedEnv), theirs(NestedEnv)
    a.reset(seed=0, options={"length": 9}), b.reset(seed=0, options={"length": 9})
    actions = a.action_space.sample()
    other = optree.tree_map(np.copy, actions)
    other["pick"][1][1, 2] ^= 1
    rewards = a.step(actions)[1], b.step(other)[1]
    assert (rewards[0] != rewards[1]).tolist() == [False, True, False]


@pytest.mark.parametrize("mode", AutoresetMode)
def test_gymnasiums_own_comparison(mode):
    """Made for single environments, it takes vector ones of one environment."""
    environments = theirs(NestedEnv, mode, 1), ours(NestedEnv, mode, 1)
    check_environments_match(*environments, 60, seed=1, info_comparison="superset")


@pytest.mark.parametrize("make_seed", [lambda: None, lambda: 3, lambda: [9, 4, 7]])
def test_kinds_of_seeds(make_seed):
    a, b = ours(SeededEnv), theirs(SeededEnv)
    a.reset(seed=0), b.reset(seed=0)
    assert_same(a.reset(seed=make_seed())[0], b.reset(seed=make_seed())[0])
    assert a.np_random_seed == b.np_random_seed
    assert [g.random() for g in a.np_random] == [g.random() for g in b.np_random]


def test_options_and_masks_pass():
    environment = ours(CountEnv, AutoresetMode.DISABLED)
    environment.reset()
    environment.step(np.zeros(N, np.int64))
    mask = np.array([True, False, True])
    assert environment.reset(options={"reset_mask": mask})[0].tolist() == [0, 1, 0]
    _, info = ours(NestedEnv).reset(options={"length": 77})
    assert info["left"].tolist() == [77] * N


def test_gymnasiums_wrappers():
    a, b = (
        NormalizeObservation(RecordEpisodeStatistics(make(cartpole)))
        for make in (ours, theirs)
    )
    assert_same(a.reset(seed=1)[0], b.reset(seed=1)[0])
    a.action_space.seed(1)
    for _ in range(100):
        actions = a.action_space.sample()
        (mine, *_, info), (their, *_, their_info) = a.step(actions), b.step(actions)
        np.testing.assert_array_equal(mine, their)
        if "episode" in info:
            ended = info["_episode"]
            assert_same(ended, info["_episode_return"])
            for one, many in (("r", "episode_return"), ("l", "episode_length")):
                np.testing.assert_array_equal(info["episode"][one], info[many])
                np.testing.assert_array_equal(
                    info["episode"][one], their_info["episode"][one]
                )
    assert len(a.env.return_queue) > N
    assert list(a.env.return_queue) == list(b.env.return_queue)


def test_calls_attributes_frames_and_close():
    inner = SerialVectorEnvironment(
        functools.partial(CountEnv, render_mode="rgb_array"), 2
    )
    made = inner._slots.environments
    environment = as_gymnasium(inner)
    environment.reset(seed=0)
    environment.step(np.array([0, 0]))
    assert environment.call("add", 2, twice=True) == (5, 5)
    assert environment.get_attr("max_count") == (3, 3)
    environment.set_attr("max_count", [4, 5])
    assert environment.get_attr("max_count") == (4, 5)
    frames = environment.render()
    assert isinstance(frames, tuple) and len(frames) == 2
    assert frames[0].shape == (2, 2, 3) and (np.stack(frames) == 1).all()
    environment.close()
    environment.close()
    assert environment.closed and [one.closed for one in made] == [1, 1]
    for call in (environment.reset, environment.render):
        with pytest.raises(ClosedEnvironmentError):
            call()


def test_errors_pass():
    environment = as_gymnasium(
        SerialVectorEnvironment(functools.partial(FailingEnv, at=2), 2)
    )
    environment.reset()
    environment.set_attr("at", [None, 2])
    environment.step(np.array([0, 0]))
    with pytest.raises(RuntimeError, match="^planned$") as caught:
        environment.step(np.array([0, 0]))
    assert caught.value.environment_index == 1
    with pytest.raises(ValueError, match="expected 2 actions, got 3"):
        environment.step(np.array([0, 0, 0]))


def test_only_vector_environments_of_distrl_are_served():
    with pytest.raises(TypeError, match="of distrl.*CountEnv"):
        as_gymnasium(CountEnv())
    with pytest.raises(TypeError, match="of distrl.*SyncVectorEnv"):
        as_gymnasium(theirs(CountEnv))


@pytest.mark.parametrize("factory", [cartpole, NestedEnv])
def test_there_and_back(factory):
    """as_gymnasium and GymnasiumVectorEnvironment undo each other."""
    direct = SerialVectorEnvironment(factory, N)
    back = GymnasiumVectorEnvironment(as_gymnasium(SerialVectorEnvironment(factory, N)))
    space = as_gymnasium(direct).action_space
    space.seed(0)
    assert direct.spec == back.spec
    assert_same(direct.reset(2), back.reset(2))
    for _ in range(100):
        actions = space.sample()
        assert_same(tuple(direct.step(actions)), tuple(back.step(actions)))


def test_array_programs_are_served_too():
    environment = as_gymnasium(NativeVectorEnvironment("CartPole-v1", 2))
    assert isinstance(environment, VectorEnv)
    environment.reset(seed=1)
    for _ in range(30):
        observation, reward, *_ = environment.step(environment.action_space.sample())
        assert observation in environment.observation_space
        assert reward.dtype == np.float64


SINGLE = {
    "CartPole": cartpole,
    "Acrobot": functools.partial(gymnasium_environment, "Acrobot-v1"),
    "Taxi": functools.partial(gymnasium_environment, "Taxi-v4"),
    "Blackjack": functools.partial(gymnasium_environment, "Blackjack-v1"),
    "Pong": functools.partial(atari_environment, max_episode_frames=400),
    "Breakout with lives": functools.partial(
        atari_environment, "BreakoutNoFrameskip-v4", screen_size=36
    ),
    "nested": NestedEnv,
    "count": CountEnv,
}


@pytest.mark.parametrize("name", SINGLE)
def test_gymnasiums_checker_of_single_environments(name):
    environment = SINGLE[name]()
    remade = "atari" not in str(SINGLE[name])  # by Gymnasium, from the id alone
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tastes, such as bounds at infinity
        check_env(environment, skip_render_check=True, skip_close_check=not remade)
    assert isinstance(environment, gymnasium.Env)
