import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from distrl.core.errors import ConfigError
from distrl.core.seeds import EnvironmentSeeds
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
    ours = atari_environment(
        id, terminal_on_life_loss=False, clip_rewards=False, fire_reset=False
    )
    theirs = reference(id, life_loss=False)
    a, b = ours.reset(seed=7)[0], theirs.reset(seed=7)[0]
    num_games, num_points = 0, 0
    for action in actions(100 if "ALE" in id else 300):
        np.testing.assert_array_equal(a, b)
        a, reward, *ends, info = ours.step(action)
        b, raw, *their_ends, _ = theirs.step(action)
        assert reward == raw and ends == their_ends
        assert ("episode" in info) == any(ends)
        num_points += raw != 0
        if any(ends):
            num_games += 1
            np.testing.assert_array_equal(a, b)
            a, b = ours.reset()[0], theirs.reset()[0]
    assert "ALE" in id or (num_points > 0 and (num_games > 0 or "Pong" in id))


class SlowAtari:
    """The stack as its definition says, on the bare emulator, one thing after another.

    Rewards in resets are dropped from the returns of new games (no-ops), not from those
    of running ones. `take` is everything between two choices of the player.
    """

    def __init__(self, id, noop_max, life_loss, fire, clip, max_frames):
        self.env = gymnasium.make(
            id,
            frameskip=1,
            max_num_frames_per_episode=max_frames,
            obs_type="grayscale",
            disable_env_checker=True,
        ).unwrapped
        self.ale = self.env.ale
        self.noop_max, self.life_loss, self.fire = noop_max, life_loss, fire
        self.clip = clip
        self.goes_on = False

    def reset(self, seed=None):
        if self.goes_on:
            self.take(NOOP)
        else:
            self.new_game(seed)
        if self.fire:
            self.take(FIRE)
        self.goes_on = False
        self.frames = [self.frame] * 4
        return np.array(self.frames)

    def new_game(self, seed):
        self.env.reset(seed=seed)
        self.total, self.length = 0.0, 0
        if self.noop_max:
            for _ in range(self.env.np_random.integers(1, self.noop_max + 1)):
                self.env.step(NOOP)
        self.frame = shrunk(self.ale.getScreenGrayscale())

    def step(self, action):
        reward, terminated, truncated, over = self.take(action)
        self.length += 1
        self.goes_on = terminated and not over
        self.frames = [*self.frames[1:], self.frame]
        shown = reward if not self.clip else float((reward > 0) - (reward < 0))
        episode = {"r": self.total, "l": self.length} if over else None
        return np.array(self.frames), shown, terminated, truncated, episode

    def take(self, action):
        lives, reward, screens = self.ale.lives(), 0.0, []
        for _ in range(4):
            screen, raw, over, truncated, _ = self.env.step(action)
            reward += raw
            screens.append(screen)
            lost = self.life_loss and self.ale.lives() < lives
            if over or truncated or lost:
                break
        self.total += reward
        self.frame = shrunk(np.max(screens[-2:], axis=0))
        return reward, over or lost, truncated, over or truncated


def shrunk(screen):
    return cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA)


DEFAULTS = {
    "noop_max": 0,
    "terminal_on_life_loss": False,
    "fire_reset": False,
    "clip_rewards": False,
    "max_episode_frames": 108_000,
}
OPTIONS = {
    "none": {},
    "no-ops": {"noop_max": 30},
    "life loss": {"terminal_on_life_loss": True},
    "fire": {"fire_reset": True},
    "clip": {"clip_rewards": True, "max_episode_frames": 700},
    "limit": {"max_episode_frames": 300},
    "all": {
        "noop_max": 30,
        "terminal_on_life_loss": True,
        "fire_reset": True,
        "clip_rewards": True,
        "max_episode_frames": 500,
    },
}


@pytest.mark.parametrize(
    "game, name",
    [
        ("Breakout", "none"),
        ("Breakout", "no-ops"),
        ("Breakout", "life loss"),
        ("Breakout", "fire"),
        ("Breakout", "limit"),
        ("SpaceInvaders", "clip"),  # rewards of 5 and more
        ("SpaceInvaders", "all"),
        ("Pong", "all"),
    ],
)
def test_equals_the_definition(game, name):
    """But for the last frame of an episode: there Gymnasium's wrapper shows what it saw
    last in a whole step, up to 4 frames before the end."""
    id, options = f"{game}NoFrameskip-v4", DEFAULTS | OPTIONS[name]
    ours, slow = atari_environment(id, **options), SlowAtari(id, *options.values())
    a, b = ours.reset(seed=5)[0], slow.reset(seed=5)
    np.testing.assert_array_equal(a, b)
    num_ends, num_points = 0, 0
    for action in actions(200, seed=1):
        a, *told, info = ours.step(action)
        b, *expected, episode = slow.step(action)
        assert (told, info.get("episode")) == (expected, episode)
        num_points += told[0] != 0
        if any(told[1:]):
            np.testing.assert_array_equal(a[:-1], b[:-1])
            a, b = ours.reset()[0], slow.reset()
            num_ends += 1
        np.testing.assert_array_equal(a, b)
    assert num_points > 0 and num_ends > 0


def test_life_loss_ends_the_episode_but_not_the_game():
    """The oracle is Gymnasium's stack, whose game is continued by hand."""
    ours, theirs = atari_environment(BREAKOUT), reference(BREAKOUT, life_loss=True)
    ours.reset(seed=3), theirs.reset(seed=3)
    theirs.step(FIRE)
    num_lost, total, length, games = 0, 0.0, 0, []
    for action in actions(400):
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
        lambda: atari_environment(BREAKOUT), 2, EnvironmentSeeds(1, "actor", 0)
    )
    leaf = environment.spec.observation
    assert (leaf.shape, leaf.dtype, leaf.num_stacked) == ((4, 84, 84), "uint8", 4)
    observation, _ = environment.reset()
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
    assert environment.get_attr("num_games") == [2]


def test_unknown_game():
    with pytest.raises(ConfigError, match="Pung.*PongNoFrameskip-v4"):
        atari_environment("PungNoFrameskip-v4")
