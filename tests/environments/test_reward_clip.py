import numpy as np
import pytest
from nested_environment import NestedEnv
from small_environments import CountEnv
from small_vectors import by_gymnasium, serial, shared, steps

from distrl.environments.reward_clip import RewardClip, RewardSign


class SignedEnv(CountEnv):
    """Pays action - 3."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward - 3.0, *rest


def rewards(environment):
    environment.reset()
    seen = [environment.step(np.array([action, 3])) for action in (0, 2, 3)]
    assert seen[-1].info["episode_return"].tolist() == [-4.0, 0.0]  # the raw sum
    assert seen[-1].info["_episode_return"].all()
    assert seen[-1].reward.dtype == np.float32
    resets = environment.step(np.array([9, 9]))
    assert resets.reward.tolist() == [0, 0]
    last = environment.step(np.array([9, 4]))
    return [step.reward[0] for step in seen] + last.reward.tolist()


@pytest.mark.parametrize("back_end", [serial, shared, by_gymnasium])
@pytest.mark.timeout(60)
def test_clips_but_not_the_return(back_end):
    with RewardClip(back_end(SignedEnv), -0.5, 2.0) as environment:
        assert rewards(environment) == [-0.5, -0.5, 0.0, 2.0, 1.0]
    with RewardSign(back_end(SignedEnv)) as environment:
        assert rewards(environment) == [-1.0, -1.0, 0.0, 1.0, 1.0]


def test_nothing_else_changes():
    for seen, raw in zip(
        steps(RewardClip(serial(NestedEnv)), 30),
        steps(serial(NestedEnv), 30),
        strict=True,
    ):
        np.testing.assert_equal(seen[0], raw[0])
        np.testing.assert_equal(seen[2:], raw[2:])
        assert len(seen) == 2 or (seen[1] == np.clip(raw[1], -1, 1)).all()


def test_bad_bounds():
    with pytest.raises(ValueError, match="low < high, got 1.0 and -1.0"):
        RewardClip(serial(), 1.0, -1.0)
