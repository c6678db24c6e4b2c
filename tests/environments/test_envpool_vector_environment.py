import functools
import importlib.util
import sys

import numpy as np
import pytest
from fake_envpool import FakeEnvPool

from distrl.core.errors import ConfigError
from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.atari import atari_environment
from distrl.environments.envpool_vector_environment import EnvPoolVectorEnvironment
from distrl.environments.frame_stack import FrameStack
from distrl.environments.spaces import environment_spec

SEEDS = EnvironmentSeeds(1, "actor", 2)
IS_INSTALLED = importlib.util.find_spec("envpool") is not None


@pytest.fixture
def fake(monkeypatch):
    module = FakeEnvPool()
    monkeypatch.setitem(sys.modules, "envpool", module)
    return module


def frames(step):
    return step.observation[..., 0].tolist()


def play(environment, *actions):
    return [environment.step(np.array(row)) for row in actions]


def test_games_outlive_their_episodes(fake):
    with EnvPoolVectorEnvironment("Pong-v5", 2) as environment:
        environment.reset()
        lost, reset, _, over, new, cut = play(
            environment, [1, 0], [1, 0], [0, 0], [1, 0], [0, 0], [0, 3]
        )
    assert lost.terminated.tolist() == [True, False] and lost.info == {}
    assert reset.reward.tolist() == [0, 1] and not reset.terminated.any()
    assert over.terminated.tolist() == [True, False]
    assert over.info["_episode_return"].tolist() == [True, False]
    assert over.info["episode_return"].tolist() == [30.0, 0.0]  # raw, of both lives
    assert over.info["episode_length"].tolist() == [3, 0]
    assert new.reward.tolist() == [0, 1] and new.info == {}
    assert cut.truncated.tolist() == [False, True] and not cut.terminated.any()
    assert cut.info["episode_return"].tolist() == [0.0, 60.0]
    assert cut.info["episode_length"].tolist() == [0, 6]


def test_game_that_ends_in_the_no_ops_is_reported_by_the_reset(fake):
    environment = EnvPoolVectorEnvironment("Pong-v5", 1)
    environment.reset()
    played = play(environment, [0], [2], [0], [0], [1], [0], [1])
    reported = ["episode_return" in step.info for step in played]
    assert reported == [False, False, True, False, False, False, True]
    assert played[2].info["episode_return"].tolist() == [20.0]
    assert not played[2].terminated.any()
    assert played[-1].info["episode_return"].tolist() == [30.0]


def test_episode_begins_with_its_first_frame_repeated(fake):
    environment = EnvPoolVectorEnvironment("Pong-v5", 2, SEEDS)
    assert environment.spec.observation.num_stacked == 3
    first, _ = environment.reset()
    a, b = first[:, 0, 0].tolist()
    played = play(environment, [1, 0], [0, 0], [0, 1], [0, 0], [0, 0], [0, 0])
    assert [frames(step)[0] for step in played] == [
        [a, a, a + 1],
        [a + 2, a + 2, a + 2],
        [a + 2, a + 2, a + 3],
        [a + 2, a + 3, a + 4],
        [a + 3, a + 4, a + 5],
        [a + 4, a + 5, a + 6],
    ]
    assert [frames(step)[1] for step in played[2:5]] == [
        [b + 1, b + 2, b + 3],
        [b + 4, b + 4, b + 4],
        [b + 4, b + 4, b + 5],
    ]


def test_seeds_are_the_slots_own(fake):
    environment = EnvPoolVectorEnvironment("Pong-v5", 2, SEEDS)
    environment.reset()
    environment.reset()
    assert fake.seeds == [[SEEDS.of(0), SEEDS.of(1)]]
    environment.reset(seed=[4, 2**31 - 1])  # int32 without its greatest number
    environment.reset(seed=7)
    assert fake.seeds[1:] == [[4, 0], [7, 8]]
    for _ in range(2):
        EnvPoolVectorEnvironment("Pong-v5", 2)
    assert fake.seeds[-1] != fake.seeds[-2]
    assert len(set(fake.seeds[-1])) == 2


def test_environments_that_are_no_atari_games(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", FakeEnvPool(is_atari=False))
    environment = EnvPoolVectorEnvironment("Pong-v5", 1, keep_infos=True)
    assert environment.spec.observation.num_stacked == 1
    environment.reset()
    _, lost, reset = play(environment, [0], [1], [0])
    assert lost.info["episode_return"].tolist() == [2.0]
    assert lost.info["episode_length"].tolist() == [2]
    assert set(reset.info) == {"lives", "reward", "terminated"} | {
        "_lives",
        "_reward",
        "_terminated",
    }


def test_bad_arguments(fake):
    with pytest.raises(ValueError, match="num_envs.*0"):
        EnvPoolVectorEnvironment("Pong-v5", 0)
    with pytest.raises(ConfigError, match="'Pung-v5'.*Pong-v5"):
        EnvPoolVectorEnvironment("Pung-v5", 1)
    with pytest.raises(ConfigError, match="cannot make 'Pong-v5'.*speed"):
        EnvPoolVectorEnvironment("Pong-v5", 1, speed=3)
    with pytest.raises(ValueError, match="noop_max.*0"):
        EnvPoolVectorEnvironment("Pong-v5", 1, noop_max=0)
    with pytest.raises(ValueError, match=r"not to be chosen.*\['batch_size', 'seed'\]"):
        EnvPoolVectorEnvironment("Pong-v5", 1, **{"seed": 3, "batch_size": 1})
    environment = EnvPoolVectorEnvironment("Pong-v5", 2)
    with pytest.raises(ValueError, match="takes no options"):
        environment.reset(options={"reset_mask": np.ones(2, bool)})
    environment.reset()
    for actions in ([0], [0, 4], [-1, 0], [0.0, 1.0]):
        with pytest.raises(ValueError, match="actions"):
            environment.step(np.array(actions))
    with pytest.raises(NotImplementedError, match="'lives'"):
        environment.set_attr("lives", 3)


def test_render_and_attributes(fake):
    environment = EnvPoolVectorEnvironment("Pong-v5", 2, render_mode="rgb_array")
    environment.reset()
    assert environment.render()[:, 0, 0, 0].tolist() == [0, 1]
    assert environment.get_attr("options") == [{"render_mode": "rgb_array"}] * 2
    environment.close()
    assert environment._pool is None


def test_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ConfigError, match="pip install 'envpool"):
        EnvPoolVectorEnvironment("Pong-v5", 1)


def check_equals_our_atari_stack(game, num_steps=150, **options):
    """Where both can do the same (a game's resets draw numbers of no-ops of their own,
    so with one of them, and without FIRE), bit for bit until a game ends."""
    ours = atari_environment(
        f"{game}NoFrameskip-v4",
        noop_max=1,
        fire_reset=False,
        terminal_on_life_loss=False,
        clip_rewards=options["reward_clip"],
    )
    with EnvPoolVectorEnvironment(
        f"{game}-v5", 1, noop_max=1, use_fire_reset=False, **options
    ) as theirs:
        assert theirs.spec.observation == environment_spec(ours).observation
        a, _ = ours.reset()
        b, _ = theirs.reset()
        np.testing.assert_array_equal(a, b[0])
        for action in np.random.default_rng(2).integers(0, 4, num_steps):
            a, reward, terminated, truncated, info = ours.step(int(action))
            step = theirs.step(np.array([action]))
            np.testing.assert_array_equal(a, step.observation[0])
            assert (reward, truncated) == (step.reward[0], step.truncated[0])
            if "episode" in info:
                assert terminated and step.terminated[0]
                assert info["episode"]["r"] == step.info["episode_return"][0]
                assert info["episode"]["l"] == step.info["episode_length"][0]
                return


def play_lives(seeds, num_steps):
    """Of the real thing: the rules of the interface, over lives and games."""
    environment = EnvPoolVectorEnvironment(
        "Breakout-v5", 3, seeds, episodic_life=True, keep_infos=True
    )
    rng = np.random.default_rng(0)
    seen = [environment.reset()[0].copy()]
    kept, resetting = [seen[0]], np.zeros(3, bool)
    totals, lengths, num_games, num_lives = np.zeros(3), np.zeros(3, int), 0, 0
    for _ in range(num_steps):
        actions = rng.integers(0, 4, 3)
        step = environment.step(actions)
        for slot in range(3):
            stack = step.observation[slot]
            older = stack[1:] if resetting[slot] else kept[-1][slot][1:]
            np.testing.assert_array_equal(stack[:-1], older)
        assert not step.reward[resetting].any()
        assert not (step.terminated | step.truncated)[resetting].any()
        totals += step.info["reward"]
        lengths += ~resetting
        over = step.info["terminated"].astype(bool)
        finished = step.info.get("_episode_return", np.zeros(3, bool))
        np.testing.assert_array_equal(over, finished)
        for slot in np.flatnonzero(over):
            assert step.info["lives"][slot] == 0
            assert step.info["episode_return"][slot] == totals[slot]
            assert step.info["episode_length"][slot] == lengths[slot]
            totals[slot] = lengths[slot] = 0
        resetting = step.terminated | step.truncated
        num_games, num_lives = num_games + over.sum(), num_lives + resetting.sum()
        kept.append(step.observation)
        seen.append(step.observation.copy())
    np.testing.assert_equal(kept, seen)  # nothing was written again
    assert num_steps < 180 or (num_games > 1 and num_lives > 3 * num_games)
    environment.step_async(np.zeros(3, int))
    observation, info = environment.reset()  # behind a pending step, amid games
    assert info["lives"].tolist() == [5] * 3
    assert all((stack == stack[0]).all() for stack in observation)
    environment.step_async(np.zeros(3, int))
    environment.close()
    return np.array(seen)


def check_streams():
    first, again = play_lives(SEEDS, 180), play_lives(SEEDS, 30)
    np.testing.assert_array_equal(first[: len(again)], again)
    assert (first[:, 0] != first[:, 1]).any()
    environment = EnvPoolVectorEnvironment("Breakout-v5", 3, episodic_life=True)
    begun, _ = environment.reset(seed=[SEEDS.of(slot) for slot in range(3)])
    np.testing.assert_array_equal(begun, first[0])


def check_cart_pole():
    environment = FrameStack(EnvPoolVectorEnvironment("CartPole-v1", 4, SEEDS), 2)
    assert environment.spec.observation.shape == (2, 4)
    environment.reset()
    resetting, lengths, num_episodes = np.zeros(4, bool), np.zeros(4), 0
    for _ in range(100):
        step = environment.step(np.zeros(4, int))
        assert (step.reward == ~resetting).all()
        lengths += ~resetting
        stack = step.observation
        assert (stack[resetting, 0] == stack[resetting, 1]).all()
        resetting = step.terminated | step.truncated
        if resetting.any():
            num_episodes += resetting.sum()
            np.testing.assert_array_equal(
                step.info["episode_length"][resetting], lengths[resetting]
            )
            lengths[resetting] = 0
    assert num_episodes > 20


def check_error():
    with pytest.raises(ConfigError, match="pip install"):
        EnvPoolVectorEnvironment("Pong-v5", 1)


def check_unknown_option():
    with pytest.raises(ConfigError, match="cannot make 'Pong-v5'.*speed"):
        EnvPoolVectorEnvironment("Pong-v5", 1, speed=3)


REAL = [
    functools.partial(check_equals_our_atari_stack, "Breakout", reward_clip=False),
    functools.partial(check_equals_our_atari_stack, "SpaceInvaders", reward_clip=True),
    check_streams,
    check_cart_pole,
    check_unknown_option,
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("check", REAL if IS_INSTALLED else [check_error])
def test_the_real_one(check):
    """Not without it: then the only thing to see is what the error says."""
    check()
