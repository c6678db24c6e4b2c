"""How episodes lie in sequences of one length: those of PPO's minibatches, and unrolls.

Where others pad an episode up to whole sequences, here sequences go on across its end,
and the row of its last observation is masked. So the first sequences of the table below
come out the same, and what is behind an end is trained on where others have padding.
"""

import numpy as np
import pytest

from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.core.trajectories import trajectories_spec
from distrl.learners.minibatches import StepMinibatches, UnrollMinibatches
from distrl.losses.returns import step_mask
from distrl.memories.unroll_accumulator import UnrollAccumulator
from distrl.models.ppo import PPOBatch

L = 4
# Episodes of 3 and of 5 steps, and the first 2 steps of another one; 0 marks the row of
# an episode's last observation.
ROWS = np.array([101, 102, 103, 0, 201, 202, 203, 204, 205, 0, 301, 302])
MASK = ROWS > 0
SEQUENCES = [[101, 102, 103, 0], [201, 202, 203, 204], [205, 0, 301, 302]]
LENGTHS = [3, 4, 3]
STATES = [900, 904, 908]  # before the first row of each
RESETS = [201, 301]  # the first rows of an episode that are known as such


def ppo_batch(core_state=()):
    """One stream; whatever has a number has its row's."""
    column = ROWS[:, None]
    numbers = [column.astype(np.float32)] * 6
    mask = MASK[:, None].astype(np.float32)
    return PPOBatch(*numbers, mask, core_state=core_state)


def test_unrolls_of_a_round():
    states = (np.array(STATES, np.float32)[:, None, None],)
    minibatches = UnrollMinibatches(ppo_batch(states), L)
    parts = list(minibatches.epoch(L, np.random.default_rng(0)))
    parts.sort(key=lambda part: part.core_state[0].item())
    assert [part.raw_action.tolist() for part in parts] == SEQUENCES
    assert [int(part.mask.sum()) for part in parts] == LENGTHS
    assert [part.core_state[0].tolist() for part in parts] == [[[s]] for s in STATES]
    resets = np.concatenate([part.raw_action[part.reset] for part in parts])
    assert resets.tolist() == RESETS


@pytest.mark.parametrize("size", [1, 3, 4, 10, 99])
def test_single_steps_of_a_round(size):
    """No row of a last observation, each other one once, however they are divided."""
    epoch = StepMinibatches(ppo_batch()).epoch(size, np.random.default_rng(0))
    parts = [part.raw_action.tolist() for part in epoch]
    assert sorted(sum(parts, [])) == ROWS[MASK].tolist()
    assert len(parts) == max(1, MASK.sum() // size)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_unrolls_of_trajectories():
    """Here the row behind a sequence is in it as well, as row L."""
    number, state = ArraySpec((), "int64"), ArraySpec((), "float32")
    environment = EnvironmentSpec(number, number)
    spec = trajectories_spec(environment, number, 1, L, state)
    accumulator, found = UnrollAccumulator(spec, 1), []
    rows = np.append(ROWS, 303)
    ends = np.append(~MASK[1:], [False, False])  # the step before such a row ends
    no, parameters = np.zeros(1, bool), np.zeros((1, 1), np.float32)
    for time, (row, end) in enumerate(zip(rows, ends, strict=True)):
        row, before = np.array([row]), np.array([900 + time], np.float32)
        finished = accumulator.begin(row, row, parameters, 0, before)
        accumulator.end(np.zeros(1, np.float32), np.array([end]), no)
        found += [] if finished is None else [finished]
    unrolls = [trajectories for trajectories, _ in found]
    assert [unroll.raw_action[0].tolist() for unroll in unrolls] == SEQUENCES
    behind = [unroll.observation[0, L].item() for unroll in unrolls]
    assert behind == [201, 205, 303]
    assert [env_steps for _, env_steps in found] == LENGTHS
    assert [unroll.core_state.item() for unroll in unrolls] == STATES
    masks = [
        step_mask(unroll.terminated.T, unroll.truncated.T, unroll.first_is_last)
        for unroll in unrolls
    ]
    np.testing.assert_array_equal(np.concatenate(masks)[:, 0], MASK)
