"""The standard Atari stack on ale-py, from Gymnasium's well-kept wrappers and one more.

The conventions are those of Mnih et al. 2015 (10.1038/nature14236): up to 30 no-op
frames at a new game, 4 frames a step with the maximum of the last two, 84x84 gray, 4
frames stacked, sign of the reward, loss of a life as the end of an episode to the
learner but to nobody else.
"""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np
from gymnasium.wrappers import (
    AtariPreprocessing,
    FrameStackObservation,
    TransformReward,
)

from distrl.environments.gymnasium_environments import gymnasium_environment

gymnasium.register_envs(ale_py)

NOOP, FIRE = 0, 1


def atari_environment(
    id: str = "PongNoFrameskip-v4",
    frame_skip: int = 4,
    noop_max: int = 30,
    screen_size: int = 84,
    num_stacked: int = 4,
    terminal_on_life_loss: bool = True,
    clip_rewards: bool = True,
    fire_reset: bool = True,
    max_episode_frames: int = 108_000,
    **make_kwargs: Any,
) -> gymnasium.Env:
    """A game whose observations are uint8 [num_stacked, screen_size, screen_size].

    Args:
      id: "<Game>NoFrameskip-v4" (no sticky actions) or "ALE/<Game>-v5" (actions stick
        with probability 0.25).
      frame_skip: emulator frames a step.
      noop_max: most frames without action at the start of a game, 0 for none.
      screen_size: pixels.
      num_stacked: frames in an observation; an episode begins with its first repeated.
      terminal_on_life_loss: the loss of a life ends an episode; the reset behind it
        goes on with the same game. Switch it off to evaluate.
      clip_rewards: rewards become their sign; `info["episode"]` keeps the raw sums.
      fire_reset: every episode begins with one FIRE in games that have it.
      max_episode_frames: emulator frames until a game is truncated.
      **make_kwargs: for the emulator, such as `full_action_space`.

    Raises ConfigError for an unknown game.
    """
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    environment: gymnasium.Env = gymnasium_environment(
        id,
        frameskip=1,
        max_num_frames_per_episode=max_episode_frames,
        **{"obs_type": "grayscale", **make_kwargs},  # cheaper than colours nobody sees
    )
    environment = AtariPreprocessing(
        environment, noop_max, frame_skip, screen_size, terminal_on_life_loss
    )
    environment = WholeGames(environment, fire_reset)
    if clip_rewards:
        environment = TransformReward(
            environment, lambda raw: float(np.sign(float(raw)))
        )
    return FrameStackObservation(environment, num_stacked)


class WholeGames(gymnasium.Wrapper):
    """Games that outlive the episodes that the learner is told of.

    A reset behind the loss of a life continues the game with one NOOP; any other starts
    a new one. The info of the step (or of the reset) in which a game really ended has
    `episode: {"r": raw return, "l": steps}`. Rewards of the NOOP and of FIRE at a reset
    count; as steps they don't, for nobody chose them.
    """

    reports_episodes = True

    def __init__(self, environment: gymnasium.Env, fire_reset: bool):
        super().__init__(environment)
        emulator: Any = environment.unwrapped
        self._ale = emulator.ale
        meanings = emulator.get_action_meanings()
        self._fires = fire_reset and "FIRE" in meanings[FIRE : FIRE + 1]
        self._lost_life = False
        self._return, self._length = 0.0, 0

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, raw, terminated, truncated, info = self.env.step(action)
        reward = float(raw)
        self._return += reward
        self._length += 1
        over = truncated or self._ale.game_over()
        self._lost_life = terminated and not over
        if over:
            info["episode"] = {"r": self._return, "l": self._length}
        return observation, reward, terminated, truncated, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self._lost_life and seed is None and options is None:
            observation, info = self._play(NOOP)
        else:
            observation, info = self._new_game(seed=seed, options=options)
        if self._fires:
            observation, fire_info = self._play(FIRE)
            info = {**info, **fire_info}
        self._lost_life = False
        return observation, info

    def _play(self, action: int) -> tuple[Any, dict[str, Any]]:
        """One step on nobody's behalf; a new game if it ended this one."""
        self._length -= 1
        observation, _, _, _, info = self.step(action)
        if "episode" not in info:
            return observation, info
        observation, new_info = self._new_game()
        return observation, {**new_info, "episode": info["episode"]}

    def _new_game(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._return, self._length = 0.0, 0
        return self.env.reset(**kwargs)
