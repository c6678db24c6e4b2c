import functools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from nested_environment import NestedEnv
from small_environments import CountEnv, FailingEnv, SeededEnv
from small_vectors import SEEDS, by_gymnasium, double_buffered, serial, shared, steps

from distrl.core.nests import map_nest
from distrl.core.specs import describe, leaves
from distrl.environments.frame_stack import FrameStack
from distrl.environments.restarts import RestartPolicy
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.slot_records import SlotSettings
from distrl.environments.spaces import space_spec

BACK_ENDS = pytest.mark.parametrize(
    "back_end", [serial, shared, double_buffered, by_gymnasium]
)


def rows(seen):
    """The observations of `steps`, and which of them begin an episode, bool [N]."""
    observations, begins = [seen[0][0]], [np.ones(2, bool)]
    ended = np.zeros(2, bool)
    for observation, _, terminated, truncated, _ in seen[1:]:
        observations.append(observation)
        begins.append(ended)
        ended = terminated | truncated
    return observations, begins


def stacked(observations, begins, number, padding):
    """Stacks made by looking back, frame by frame, as far as the episode goes."""
    for time in range(len(observations)):
        starts = [
            max(t for t in range(time + 1) if begins[t][slot]) for slot in range(2)
        ]

        def look_back(*frames, time=time, starts=starts):
            result = []
            for slot in range(2):
                times = range(time - number + 1, time + 1)
                result.append(
                    [
                        frames[max(t, starts[slot])][slot]
                        * (t >= starts[slot] or padding == "reset")
                        for t in times
                    ]
                )
            return np.array(result, frames[0].dtype)

        yield map_nest(look_back, *observations)


@BACK_ENDS
@pytest.mark.parametrize("padding", ["reset", "zero"])
@pytest.mark.timeout(60)
def test_equals_looking_back(back_end, padding):
    with serial(NestedEnv) as alone:
        seen = steps(alone, 60)
        expected = stacked(*rows(seen), 3, padding)
    with FrameStack(back_end(NestedEnv), 3, padding) as environment:
        again = steps(environment, 60)
        _, begins = rows(seen)
        assert sum(begin.sum() for begin in begins) > 10
        np.testing.assert_equal([row[0] for row in again], list(expected))
        if back_end is not double_buffered:
            for one, other in zip(again[1:], seen[1:], strict=True):
                np.testing.assert_equal(one[1:], other[1:])


def first_column(environment, num_steps=5):
    """Stacks of slot 0 over some steps, from the reset."""
    seen = [environment.reset()[0]]
    for _ in range(num_steps):
        seen.append(environment.step(np.ones(environment.num_envs, int)).observation)
    return [stack[0].tolist() for stack in seen]


def test_next_step_row_of_the_reset_starts_anew():
    environment = FrameStack(serial(functools.partial(CountEnv, 2)), 3)
    assert first_column(environment) == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 2],
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 2],
    ]


class ShiftedEnv(CountEnv):
    """Never shows a zero."""

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0] + 5, {}

    def step(self, action):
        count, *rest = super().step(action)
        return count + 5, *rest


def test_zeros_are_in_front_of_an_episode():
    environment = FrameStack(serial(functools.partial(ShiftedEnv, 2)), 3, "zero")
    assert first_column(environment, 3) == [[0, 0, 5], [0, 5, 6], [5, 6, 7], [0, 0, 5]]


def made(mode, count=2, num_envs=1):
    settings = SlotSettings(autoreset_mode=mode)
    factory = functools.partial(ShiftedEnv, count)
    return SerialVectorEnvironment(factory, num_envs, SEEDS, settings)


@pytest.mark.parametrize("padding, fill", [("reset", 5), ("zero", 0)])
def test_same_step(padding, fill):
    environment = FrameStack(made(AutoresetMode.SAME_STEP), 3, padding)
    environment.reset()
    environment.step(np.ones(1, int))
    step = environment.step(np.ones(1, int))
    assert step.observation.tolist() == [[fill, fill, 5]]
    assert step.info["final_obs"][0].tolist() == [5, 6, 7]
    step = environment.step(np.ones(1, int))
    assert step.observation.tolist() == [[fill, 5, 6]]
    assert "final_obs" not in step.info


def test_same_step_of_an_episode_of_one_step_behind_an_error():
    environment = FrameStack(made(AutoresetMode.SAME_STEP, 1), 3)
    environment.reset()
    environment._lost()
    step = environment.step(np.ones(1, int))
    assert step.info["final_obs"][0].tolist() == [6, 6, 6]


def test_disabled_begins_the_slots_of_the_mask_anew():
    environment = FrameStack(made(AutoresetMode.DISABLED, num_envs=2), 3)
    environment.reset()
    environment.step(np.ones(2, int))
    before = environment.step(np.ones(2, int)).observation
    assert before.tolist() == [[5, 6, 7], [5, 6, 7]]
    mask = np.array([True, False])
    observation, _ = environment.reset(options={"reset_mask": mask})
    assert observation.tolist() == [[5, 5, 5], [5, 6, 7]]
    environment.reset(options={"reset_mask": ~mask})
    step = environment.step(np.ones(2, int))
    assert step.observation.tolist() == [[5, 5, 6], [5, 5, 6]]


def test_error_begins_every_stack_anew():
    environment = FrameStack(serial(FailingEnv), 3)
    environment.reset()
    environment.set_attr("at", [None, 3])
    for _ in range(2):
        environment.step(np.ones(2, int))
    with pytest.raises(RuntimeError, match="planned"):
        environment.step(np.ones(2, int))
    step = environment.step(np.ones(2, int))
    assert step.observation.tolist() == [[4, 4, 4], [0, 0, 0]]
    step = environment.step(np.ones(2, int))
    assert step.observation.tolist() == [[4, 4, 5], [0, 0, 1]]


def test_environment_made_anew_repeats_its_last_frame(tmp_path):
    factory = functools.partial(FailingEnv, once=tmp_path / "failed")
    settings = SlotSettings(restart_on_error=RestartPolicy(limit=1))
    environment = FrameStack(SerialVectorEnvironment(factory, 1, SEEDS, settings), 3)
    assert first_column(environment, 5)[2:] == [
        [0, 1, 2],
        [1, 2, 2],
        [0] * 3,
        [0, 0, 1],
    ]
    assert environment.num_restarts == 1


def test_returned_stacks_are_the_callers():
    environment = FrameStack(serial(SeededEnv), 2)
    first, _ = environment.reset()
    kept = first.copy()
    second = environment.step(np.zeros(2, int)).observation
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(second[:, 0], kept[:, 1])
    second_kept = second.copy()
    second[:] = -1
    third = environment.step(np.zeros(2, int)).observation
    np.testing.assert_array_equal(third[:, 0], second_kept[:, 1])


@pytest.mark.parametrize("padding", ["reset", "zero"])
def test_spec_and_space(padding):
    environment = FrameStack(serial(NestedEnv), 3, padding)
    spec = environment.spec.observation
    assert leaves(map_nest(lambda leaf: leaf.num_stacked, spec)) == (
        [3 if padding == "reset" else 1] * len(leaves(spec))
    )
    assert spec["pixels"].shape == (3, 4, 3, 2)
    assert spec["choices"].maximum == (2, 3) * 3
    assert environment.spec.action == environment.environment.spec.action
    text = map_nest(lambda line: line.split(", ")[0], describe(spec))
    space = environment.observation_space
    bounds = map_nest(lambda line: line.split(", ")[0], describe(space_spec(space)))
    assert text == bounds
    row = map_nest(lambda leaf: leaf[0], environment.reset()[0])
    assert space.contains(row)


def test_zeros_are_within_the_bounds():
    class Positive(ShiftedEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = type(self.observation_space)(100, start=5)

    zero, repeated = (
        FrameStack(serial(Positive), 2, padding).spec.observation
        for padding in ("zero", "reset")
    )
    assert (zero.minimum, zero.maximum) == (0, 104)
    assert (repeated.minimum, repeated.maximum) == (5, 104)


def test_bad_arguments():
    with pytest.raises(ValueError, match="num_stacked.*0"):
        FrameStack(serial(), 0)
    with pytest.raises(ValueError, match="'reset', 'zero'.*'edge'"):
        FrameStack(serial(), 2, padding="edge")
