import math

import numpy as np
import pytest

from distrl.metrics.episode_statistics import EpisodeStatistics


def test_window_and_totals():
    statistics = EpisodeStatistics(window=3)
    statistics.add(np.array([1.0, 2.0]), np.array([10, 20]))
    assert statistics.mean_return == 1.5 and statistics.mean_length == 15
    statistics.add([3.0, 4.0, 8.0], [30, 40, 50])
    assert statistics.mean_return == 5.0 and statistics.mean_length == 40
    assert (statistics.num_episodes, statistics.return_sum) == (5, 18.0)
    assert statistics.length_sum == 150
    assert type(statistics.return_sum) is float and type(statistics.length_sum) is int


def test_no_episode_yet():
    statistics = EpisodeStatistics()
    assert math.isnan(statistics.mean_return) and math.isnan(statistics.mean_length)
    assert statistics.num_episodes == 0


def test_bad_input():
    with pytest.raises(ValueError, match="window.*0"):
        EpisodeStatistics(0)
    with pytest.raises(ValueError):
        EpisodeStatistics().add([1.0], [1, 2])
