"""The three autoreset modes: as a table, and as Gymnasium's own SyncVectorEnv."""

import functools

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from small_environments import CountEnv, FailingEnv, NestedEnv

from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.slot_records import SlotSettings

NEXT_STEP, SAME_STEP = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
DISABLED = AutoresetMode.DISABLED
F, T = False, True
OWN_KEYS = ("episode_return", "episode_length", "_episode_return")


def counts(mode, *max_counts, truncate=False, keep_infos=False):
    made = iter([CountEnv(count, truncate) for count in max_counts])
    return SerialVectorEnvironment(
        lambda: next(made), len(max_counts), settings=SlotSettings(mode, keep_infos)
    )


@pytest.mark.parametrize("truncate", [False, True])
def test_table_of_next_step(truncate):
    environment = counts(NEXT_STEP, 2, 3, 3, truncate=truncate)
    assert environment.reset()[0].tolist() == [0, 0, 0]
    steps = [environment.step(np.array([1, 2, 3])) for _ in range(4)]
    assert [step.observation.tolist() for step in steps] == [
        [1, 1, 1],
        [2, 2, 2],
        [0, 3, 3],
        [1, 0, 0],
    ]
    assert [step.reward.tolist() for step in steps] == [
        [1, 2, 3],
        [1, 2, 3],
        [0, 2, 3],
        [1, 0, 0],
    ]
    ends = [[F, F, F], [T, F, F], [F, T, T], [F, F, F]]
    one, other = "terminated", "truncated"
    if truncate:
        one, other = other, one
    assert [getattr(step, one).tolist() for step in steps] == ends
    assert not any(getattr(step, other).any() for step in steps)
    assert steps[1].info["episode_return"].tolist() == [2, 0, 0]
    assert steps[2].info["episode_return"].tolist() == [0, 6, 9]
    assert steps[2].info["episode_length"].tolist() == [0, 3, 3]
    assert not steps[0].info and not steps[3].info


@pytest.mark.parametrize("truncate", [False, True])
def test_table_of_same_step(truncate):
    environment = counts(SAME_STEP, 2, 3, 3, truncate=truncate)
    environment.reset()
    steps = [environment.step(np.array([1, 2, 3])) for _ in range(4)]
    assert [step.observation.tolist() for step in steps] == [
        [1, 1, 1],
        [0, 2, 2],
        [1, 0, 0],
        [0, 1, 1],
    ]
    assert all(step.reward.tolist() == [1, 2, 3] for step in steps)
    ends = [[F, F, F], [T, F, F], [F, T, T], [T, F, F]]
    name = "truncated" if truncate else "terminated"
    assert [getattr(step, name).tolist() for step in steps] == ends
    assert "final_obs" not in steps[0].info
    for step, last in zip(
        steps[1:], [[2, None, None], [None, 3, 3], [2, None, None]], strict=True
    ):
        mask = [value is not None for value in last]
        assert step.info["final_obs"].tolist() == last
        assert step.info["_final_obs"].tolist() == mask
        assert step.info["_final_info"].tolist() == mask
        assert step.info["_episode_return"].tolist() == mask
    assert [step.info["episode_length"].tolist() for step in steps[1:]] == [
        [2, 0, 0],
        [0, 3, 3],
        [2, 0, 0],
    ]
    assert steps[2].info["episode_return"].tolist() == [0, 6, 9]


def test_table_of_disabled():
    environment = counts(DISABLED, 2, 3, 3)
    environment.reset()
    actions = np.array([1, 2, 3])
    environment.step(actions)
    step = environment.step(actions)
    assert step.observation.tolist() == [2, 2, 2]
    assert step.terminated.tolist() == [T, F, F]
    with pytest.raises(ResetNeeded, match="environment 0 has ended.*reset_mask"):
        environment.step(actions)
    options = {"reset_mask": step.terminated | step.truncated}
    assert environment.reset(options=options)[0].tolist() == [0, 2, 2]
    assert list(options) == ["reset_mask"]
    step = environment.step(actions)
    assert step.observation.tolist() == [1, 3, 3]
    assert step.terminated.tolist() == [F, T, T]
    # The reset of slot 0 alone did not touch the totals of the others.
    assert step.info["episode_return"].tolist() == [0, 6, 9]
    assert step.info["episode_length"].tolist() == [0, 3, 3]
    with pytest.raises(ResetNeeded, match="environment 1"):
        environment.step(actions)
    assert environment.reset()[0].tolist() == [0, 0, 0]
    assert environment.step(actions).observation.tolist() == [1, 1, 1]


def test_a_mask_in_next_step_mode_ends_only_what_it_names():
    environment = counts(NEXT_STEP, 2, 3, 2)
    environment.reset()
    for _ in range(2):
        step = environment.step(np.array([1, 1, 1]))
    assert step.terminated.tolist() == [T, F, T]
    observation, _ = environment.reset(options={"reset_mask": np.array([T, F, F])})
    assert observation.tolist() == [0, 2, 2]
    step = environment.step(np.array([1, 1, 1]))
    assert step.observation.tolist() == [1, 3, 0]  # slot 2 was still to be reset
    assert step.info["episode_length"].tolist() == [0, 3, 0]
    steps = [environment.step(np.array([1, 1, 1])) for _ in range(2)]
    assert steps[0].info["episode_length"].tolist() == [2, 0, 0]
    assert steps[1].info["episode_length"].tolist() == [0, 0, 2]


def test_a_mask_does_not_write_what_was_returned():
    environment = counts(DISABLED, 4, 4)
    first, _ = environment.reset()
    step = environment.step(np.array([0, 0]))
    environment.reset(options={"reset_mask": np.array([T, F])})
    assert first.tolist() == [0, 0] and step.observation.tolist() == [1, 1]


@pytest.mark.parametrize(
    "mask, text",
    [
        (np.ones(3, bool), r"bool\[2\], got bool\[3\]"),
        (np.ones((2, 1), bool), r"bool\[2, 1\]"),
        (np.ones(2), r"float64\[2\]"),
        ([0, 1], r"int64\[2\].*\[0, 1\]"),
    ],
)
def test_masks_that_do_not_fit(mask, text):
    environment = counts(DISABLED, 2, 2)
    with pytest.raises(ValueError, match=text):
        environment.reset(options={"reset_mask": mask})


def test_some_slots_cannot_be_the_first():
    environment = counts(DISABLED, 2, 2)
    with pytest.raises(ResetNeeded, match="before the first reset of all"):
        environment.reset(options={"reset_mask": np.array([T, F])})
    environment.reset(options={"reset_mask": np.array([T, T])})


def test_same_step_totals_go_on_behind_a_fault():
    environment = SerialVectorEnvironment(
        functools.partial(FailingEnv, at=None, max_count=3),
        2,
        settings=SlotSettings(SAME_STEP),
    )
    environment.reset()
    environment.set_attr("at", [None, 2])
    environment.step(np.array([1, 1]))
    with pytest.raises(RuntimeError, match="planned"):
        environment.step(np.array([1, 1]))
    steps = [environment.step(np.array([1, 1])) for _ in range(4)]
    assert steps[0].observation.tolist() == [0, 0]  # slot 1: reset by this step
    assert steps[0].info["episode_length"].tolist() == [3, 0]
    assert steps[3].info["_episode_return"].tolist() == [T, T]
    assert steps[3].info["episode_length"].tolist() == [3, 3]
    assert steps[3].info["episode_return"].tolist() == [3, 3]


def stepped(environment, mode, actions):
    """Every result of a run with these actions; resets what ended where it must."""
    yield environment.reset(seed=4)
    for action in actions:
        step = environment.step(action)
        yield step
        ended = step[2] | step[3]
        if mode is DISABLED and ended.any():
            yield environment.reset(options={"reset_mask": ended})


@pytest.mark.parametrize("mode", AutoresetMode)
def test_equal_to_sync_vector_env(mode):
    space = batch_space(NestedEnv().action_space, 4)
    space.seed(0)
    actions = [space.sample() for _ in range(120)]
    mine = SerialVectorEnvironment(NestedEnv, 4, settings=SlotSettings(mode, True))
    their = SyncVectorEnv([NestedEnv] * 4, autoreset_mode=mode)
    pairs = zip(
        stepped(mine, mode, actions), stepped(their, mode, actions), strict=True
    )
    num_resets = 0
    for got, expected in pairs:
        assert len(got) == len(expected)
        num_resets += len(got) == 2
        assert data_equivalence(got[0], expected[0], exact=True)
        for one, other in zip(got[1:-1], expected[1:-1], strict=True):
            np.testing.assert_array_equal(one, other)
        info = {key: value for key, value in got[-1].items() if key not in OWN_KEYS}
        assert data_equivalence(info, expected[-1], exact=True), (info, expected[-1])
    assert (num_resets > 20) == (mode is DISABLED)


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_final_observations_are_not_written_again(mode):
    """SAME_STEP keeps a copy of what the environment goes on to use."""
    made = iter([Reusing()])
    environment = SerialVectorEnvironment(
        lambda: next(made), 1, settings=SlotSettings(mode)
    )
    environment.reset()
    steps = [environment.step([0]) for _ in range(5)]
    if mode is SAME_STEP:
        last = [s.info["final_obs"][0].tolist() for s in steps if s.terminated[0]]
        assert last == [[3]]
    assert steps[2].observation.tolist() == ([[3]] if mode is NEXT_STEP else [[0]])


class Reusing(CountEnv):
    """Shows one array that it uses again and again."""

    def __init__(self):
        super().__init__()
        self.observation_space = Box(0, 9, (1,), np.int64)
        self._shown = np.zeros(1, np.int64)

    def reset(self, *, seed=None, options=None):
        self._shown[0], info = super().reset(seed=seed)
        return self._shown, info

    def step(self, action):
        self._shown[0], *rest = super().step(action)
        return self._shown, *rest
