import functools
import json

import numpy as np
import pytest
from small_environments import CountEnv
from small_vectors import by_gymnasium, serial, shared

from distrl.environments.episode_log import EpisodeLog
from distrl.environments.reward_clip import RewardClip


def play(environment, num_steps, action=2):
    environment.reset()
    for _ in range(num_steps):
        environment.step(np.full(environment.num_envs, action))


@pytest.mark.parametrize("back_end", [serial, shared, by_gymnasium])
@pytest.mark.timeout(60)
def test_form_of_the_file(tmp_path, back_end):
    path = tmp_path / "logs" / "0.monitor.csv"
    times = iter([1000.0, *(1000.0 + step / 8 for step in range(1, 100))])
    environment = RewardClip(back_end(functools.partial(CountEnv, 3)))
    environment = EpisodeLog(environment, path, "Count", lambda: next(times))
    with environment:
        play(environment, 3)
        first, header, *rows = path.read_text().splitlines()  # flushed by now
        play(environment, 4)
        environment.step(np.zeros(2, int))
    assert first[0] == "#" and header == "r,l,t"
    assert json.loads(first[1:]) == {"t_start": 1000.0, "env_id": "Count"}
    assert rows == ["6.0,3,0.125"] * 2  # raw returns, below or above the clip
    assert path.read_text().splitlines()[4:] == ["6.0,3,0.25"] * 2
    with pytest.raises(ValueError, match="closed"):
        environment._file.write("")


def test_nothing_but_finished_episodes(tmp_path):
    path = tmp_path / "monitor.csv"
    with EpisodeLog(serial(), path, clock=lambda: 0.0) as environment:
        environment.set_attr("max_count", [9, 3])
        play(environment, 2)
        assert len(path.read_text().splitlines()) == 2
        play(environment, 3)
    assert path.read_text().splitlines()[2:] == ["6.0,3,0.0"]


class ThirdsEnv(CountEnv):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward / 3, *rest


def test_goes_on_with_a_file(tmp_path):
    path = tmp_path / "monitor.csv"
    for now in (50.0, 80.0):
        environment = serial(functools.partial(ThirdsEnv, 1), 1)
        with EpisodeLog(environment, path, clock=lambda now=now: now) as environment:
            play(environment, 1)
    first, header, *rows = path.read_text().splitlines()
    assert json.loads(first[1:])["t_start"] == 50.0 and header == "r,l,t"
    assert rows == ["0.666667,1,0.0", "0.666667,1,30.0"]


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2\n", "#{}\nr,l,t\n", '{"t_start": 1}\nr,l,t\n', '#{"t_start": 1}\nl,r\n'],
)
def test_leaves_other_files_alone(tmp_path, text):
    path = tmp_path / "monitor.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="no log of episodes"):
        EpisodeLog(serial(), path)
    assert path.read_text() == text
