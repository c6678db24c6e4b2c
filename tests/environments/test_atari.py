import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from distrl.core.errors import ConfigError
from distrl.environments.atari import FIRE, NOOP, WholeGames, atari_environment
from distrl.environments.serial_vector_environment import SerialVectorEnvironment

BREAKOUT = "BreakoutNoFrameskip-v4"


def actions(num_steps, seed=0):
    return np.random.default_rng(seed).integers(0, 4, num_steps).tolist()


def reference(id, life_loss):
    raw = gymnasium.make(id, frameskip=1, disable_env_checker=True)
    stack = AtariPreprocessing(raw, terminal_on_life_loss=life_loss)
    return FrameStackObservation(stack, 4)


@pytest.mark.parametrize("id", ["PongNoFrameskip-v4", BREAKOUT, "ALE/Breakout-v5"])
def test_equals_gymnasium_frame_by_frame(id):
    ours = atari_environment(id, terminal_on_life_loss=False, fire_reset=False)
    theirs = reference(id, life_loss=False)
    a, b = ours.reset(seed=7)[0], theirs.reset(seed=7)[0]
    num_games = 0
    for action in actions(300):
        np.testing.assert_array_equal(a, b)
        a, reward, *ends, info = ours.step(action)
        b, raw, *their_ends, _ = theirs.step(action)
        assert reward == np.sign(raw) and ends == their_ends
        assert ("episode" in info) == any(ends)
        if any(ends):
            num_games += 1
            a, b = ours.reset()[0], theirs.reset()[0]
    assert num_games > 0 or "Pong" in id


def test_life_loss_ends_the_episode_but_not_the_game():
    """The oracle is Gymnasium's stack, whose game is continued by hand."""
    ours, theirs = atari_environment(BREAKOUT), reference(BREAKOUT, life_loss=True)
    ours.reset(seed=3), theirs.reset(seed=3)
    theirs.step(FIRE)
    num_lost, total, length, games = 0, 0.0, 0, []
    for action in actions(600):
        a, reward, terminated, truncated, info = ours.step(action)
        b, raw, their_end, _, _ = theirs.step(action)
        total, length = total + raw, length + 1
        np.testing.assert_array_equal(a[-1], b[-1])
        assert (reward, terminated) == (np.sign(raw), their_end)
        assert not truncated
        over = theirs.unwrapped.ale.game_over()
        assert info.get("episode") == ({"r": total, "l": length} if over else None)
        if over:
            games.append(total)
            total, length = 0.0, 0
            theirs.reset()
        elif terminated:
            num_lost += 1
            total += theirs.step(NOOP)[1]
        if terminated:
            a, _ = ours.reset()
            b, raw, *_ = theirs.step(FIRE)
            total += raw
            np.testing.assert_array_equal(a, np.stack([b[-1]] * 4))
    assert num_lost > 5 and games and max(games) > 0


def test_stack_after_every_reset_is_the_first_frame_repeated():
    environment = SerialVectorEnvironment(
        lambda: atari_environment(BREAKOUT), 2, seeds=[1, 2]
    )
    leaf = environment.spec.observation
    assert (leaf.shape, leaf.dtype, leaf.num_stacked) == ((4, 84, 84), "uint8", 4)
    observation = environment.reset()
    assert all((stack == stack[0]).all() for stack in observation)
    resetting, num_resets, num_games = np.zeros(2, bool), 0, 0
    for action in actions(300):
        step = environment.step([action, action])
        for slot in range(2):
            before, stack = observation[slot], step.observation[slot]
            older = stack[1:] if resetting[slot] else before[1:]
            np.testing.assert_array_equal(stack[:-1], older)
        observation, resetting = step.observation, step.terminated | step.truncated
        num_resets += resetting.sum()
        num_games += step.info.get("_episode_return", resetting[:0]).sum()
    assert 0 < num_games < num_resets / 2


def test_reset_before_a_life_is_lost_starts_a_new_game():
    environment = atari_environment(BREAKOUT, noop_max=0)
    environment.reset(seed=1)
    for _ in range(5):
        environment.step(FIRE)
    environment.reset()
    assert environment.unwrapped.ale.getEpisodeFrameNumber() == 4  # the FIRE alone


def test_seed_starts_a_new_game_behind_a_lost_life():
    environment = atari_environment(BREAKOUT)
    environment.reset(seed=1)
    while not environment.step(NOOP)[2]:
        pass
    environment.reset(seed=1)
    assert environment.unwrapped.ale.lives() == 5


def test_truncation_is_no_termination():
    environment = atari_environment("PongNoFrameskip-v4", max_episode_frames=200)
    environment.reset(seed=1)
    ends = [environment.step(NOOP)[2:] for _ in range(50)]
    length = [truncated for _, truncated, _ in ends].index(True) + 1
    assert not any(terminated for terminated, _, _ in ends[:length])
    assert ends[length - 1][2]["episode"]["l"] == length > 40


def test_games_without_fire():
    environment = atari_environment("FreewayNoFrameskip-v4", noop_max=0)
    assert "FIRE" not in environment.unwrapped.get_action_meanings()
    environment.reset(seed=1)
    assert environment.unwrapped.ale.getEpisodeFrameNumber() == 0


def test_settings():
    environment = atari_environment(
        BREAKOUT, frame_skip=2, screen_size=42, num_stacked=2, full_action_space=True
    )
    assert environment.observation_space.shape == (2, 42, 42)
    assert environment.action_space.n == 18


class Emulator(gymnasium.Env):
    """Two lives; each NOOP loses one, and each step is worth 10."""

    observation_space = gymnasium.spaces.Discrete(9)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.ale, self.num_games = self, 0

    def get_action_meanings(self):
        return ["NOOP", "FIRE"]

    def game_over(self):
        return self._lives == 0

    def reset(self, *, seed=None, options=None):
        self._lives, self.num_games = 2, self.num_games + 1
        return 0, {}

    def step(self, action):
        self._lives -= action == NOOP
        return self._lives, 10.0, action == NOOP, False, {}


def test_game_that_ends_within_a_reset_is_reported_by_the_reset():
    environment = SerialVectorEnvironment(
        lambda: WholeGames(Emulator(), fire_reset=True), 1
    )
    environment.reset()
    played = [environment.step([action]) for action in (FIRE, NOOP, FIRE, FIRE)]
    assert [bool(step.terminated[0]) for step in played] == [0, 1, 0, 0]
    # FIRE at the first reset, two steps, and the NOOP that lost the second life
    assert played[2].info["episode_return"] == [40.0]
    assert played[2].info["episode_length"] == [2]
    assert not played[3].info
    assert environment._environments[0].unwrapped.num_games == 2


def test_unknown_game():
    with pytest.raises(ConfigError, match="Pung.*PongNoFrameskip-v4"):
        atari_environment("PungNoFrameskip-v4")
