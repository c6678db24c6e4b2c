import numpy as np
import pytest
from episode_data import Episodes, episode_spec, play, slow_transitions

from distrl.core.records import experience_spec
from distrl.core.specs import ArraySpec, EnvironmentSpec, validate
from distrl.memories.n_step_accumulator import NStepAccumulator

FLOAT = EnvironmentSpec(ArraySpec((), "float32"), ArraySpec((), "int64"))


@pytest.mark.parametrize("n_step", [1, 2, 3, 7])
@pytest.mark.parametrize("block_length", [1, 4, 9])
@pytest.mark.parametrize("end", [0.0, 0.2, 0.7])
def test_equals_the_definition(n_step, block_length, end):
    episodes = Episodes(1, num_streams=3, stack=2, end=end)
    blocks = play(episodes, 40, n_step, 0.9, block_length)
    expected = slow_transitions(episodes, n_step, 0.9)
    seen = {}
    for block in blocks:
        validate(experience_spec(episode_spec(2)), block, 1, "block")
        for row, name in enumerate(block.action["name"].tolist()):
            assert name not in seen
            seen[name] = block, row
    assert seen.keys() == expected.keys()
    for name, (block, row) in seen.items():
        want, priority = expected[name]
        stream, time = int(block.stream[row]), int(block.time_tm1[row])
        assert name == episodes.name(time, stream)
        assert want.s_t["plain"] == episodes.name(int(block.time_t[row]), stream)
        assert block.episode_start[row] == episodes.rows[time]["start"][stream]
        np.testing.assert_allclose(block.reward[row], want.r_t, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(block.discount[row], want.discount_t, 1e-6)
        np.testing.assert_allclose(block.priority[row], priority, 1e-4, 1e-5)


def test_every_frame_is_shipped_once_and_in_order():
    episodes = Episodes(0, num_streams=2, stack=3)
    blocks = play(episodes, 23, 3, 0.9, 5)
    plain = np.concatenate([block.frames["plain"] for block in blocks])
    expected = np.concatenate([row["plain"] for row in episodes.rows])
    np.testing.assert_array_equal(plain, expected)
    image = np.concatenate([block.frames["image"] for block in blocks])
    np.testing.assert_array_equal(image[:, 0], expected)
    layout = np.concatenate([block.blocks for block in blocks])
    assert layout[:, 0].tolist() == [0, 5, 10, 15, 20]
    assert layout[:, 1].tolist() == [5, 5, 5, 5, 4]
    assert layout[:, 3].tolist() == [len(block.reward) for block in blocks]


def test_counts_environment_steps():
    episodes = Episodes(3, num_streams=4, stack=1)
    accumulator = NStepAccumulator(episode_spec(1), 4, 3, 0.9, 6)
    steps = rows = 0
    for _ in range(50):
        steps += accumulator.add(**episodes.step())
        if accumulator.ready:
            rows += accumulator.take()[1]
    rows += accumulator.flush(episodes.observation, np.zeros(4, "f"))[1]
    assert steps == rows == sum(int((~r["last"]).sum()) for r in episodes.rows[:-1])
    assert steps < 200


def counter_blocks(num_rows, n_step, truncate=False):
    """Episodes 0 -> 1 -> 2 -> 3; the value of observation o is o."""
    accumulator = NStepAccumulator(FLOAT, 1, n_step, 0.9, 4)
    blocks, count = [], 0
    for _ in range(num_rows):
        observation = np.array([count], np.float32)
        ended = count == 2
        count = 0 if count == 3 else count + 1
        end = np.array([ended])
        no = np.array([False])
        accumulator.add(
            observation,
            np.array([0]),
            np.zeros(1),
            observation,
            np.ones(1),
            no if truncate else end,
            end if truncate else no,
        )
        if accumulator.ready:
            blocks.append(accumulator.take()[0])
    blocks.append(accumulator.flush(np.array([count], "f"), np.array([count], "f"))[0])
    return blocks


def test_the_reset_is_no_transition():
    blocks = counter_blocks(11, 1)
    frames = np.concatenate([block.frames for block in blocks])
    pairs = [
        (frames[a], frames[b], float(d))
        for block in blocks
        for a, b, d in zip(block.time_tm1, block.time_t, block.discount, strict=True)
    ]
    gamma = float(np.float32(0.9))
    episode = [(0, 1, gamma), (1, 2, gamma), (2, 3, 0.0)]
    assert pairs == episode * 3  # 11 rows, of which 2 are last rows


@pytest.mark.parametrize(
    ("terminated", "truncated", "target"),
    [(False, True, 4.6), (True, False, 1.0), (True, True, 1.0)],
)
def test_truncated_is_not_terminated(terminated, truncated, target):
    accumulator = NStepAccumulator(FLOAT, 1, 1, 0.9, 5)
    row = np.zeros(1, "f"), np.array([0]), np.zeros(1), np.full(1, 2.0), np.ones(1)
    accumulator.add(*row, np.array([terminated]), np.array([truncated]))
    block, _ = accumulator.flush(np.zeros(1, "f"), np.full(1, 4.0))
    np.testing.assert_allclose(block.priority, target, 1e-6)
    np.testing.assert_allclose(block.discount, 0 if terminated else 0.9, 1e-6)


def test_windows_stop_at_the_episode_and_at_the_end_of_the_run():
    blocks = counter_blocks(6, 3, truncate=True)
    reward = np.concatenate([block.reward for block in blocks])
    discount = np.concatenate([block.discount for block in blocks])
    steps = [3, 2, 1, 2, 1]  # then the run ends
    np.testing.assert_allclose(reward, [sum(0.9**j for j in range(m)) for m in steps])
    np.testing.assert_allclose(discount, [0.9**m for m in steps])


@pytest.mark.parametrize("block_length", [1, 3, 4, 7, 8])
def test_a_known_episode(block_length):
    """Observations 1 … 8, the last step of the seven ends: n = 3, a discount of 0.9."""
    accumulator, blocks = NStepAccumulator(FLOAT, 1, 3, 0.9, block_length), []
    zero, no = np.zeros(1), np.array([False])
    for step, reward in enumerate([10, 0, 100, 100, 100, 100, 100]):
        shown, end = np.array([step + 1], "f"), np.array([step == 6])
        row = (shown, np.array([step]), zero, zero, np.array([reward]), end, no)
        accumulator.add(*row)
        if accumulator.ready:
            blocks.append(accumulator.take()[0])
    blocks.append(accumulator.flush(np.array([8], "f"), zero)[0])
    joined = [
        np.concatenate([getattr(block, name) for block in blocks])
        for name in ("frames", "time_tm1", "time_t", "action", "reward", "discount")
    ]
    frames, before, behind, action, reward, discount = joined
    assert frames[before].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert frames[behind].tolist() == [4, 5, 6, 7, 8, 8, 8]
    assert action.tolist() == [0, 1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(reward, [91, 171, 271, 271, 271, 190, 100], 1e-6)
    np.testing.assert_allclose(discount, [0.9**3] * 4 + [0] * 3, 1e-6)


def test_priorities_are_positive():
    accumulator = NStepAccumulator(FLOAT, 2, 1, 1.0, 1)
    zeros, no = np.zeros(2, "f"), np.zeros(2, bool)
    accumulator.add(zeros, np.zeros(2, int), zeros, zeros, zeros, no, no)
    block, _ = accumulator.flush(zeros, zeros)
    np.testing.assert_array_equal(block.priority, np.float32([1e-6, 1e-6]))


def test_reused_arrays_do_no_harm():
    accumulator = NStepAccumulator(FLOAT, 1, 1, 1.0, 2)
    observation, action = np.zeros(1, "f"), np.zeros(1, int)
    zeros, no = np.zeros(1), np.zeros(1, bool)
    for number in range(2):
        observation[:], action[:] = number, 10 + number
        accumulator.add(observation, action, zeros, zeros, zeros, no, no)
    first, _ = accumulator.take()
    observation[:] = action[:] = 99
    for _ in range(2):
        accumulator.add(observation, action, zeros, zeros, zeros, no, no)
    second, _ = accumulator.take()
    assert first.frames.tolist() == [0, 1] and first.action.tolist() == [10]
    assert second.frames.tolist() == [99, 99] and second.action.tolist() == [11, 99]


def test_refuses_what_it_cannot_use():
    for wrong in ((0, 3, 0.9, 4), (1, 0, 0.9, 4), (1, 3, 1.5, 4), (1, 3, 0.9, 0)):
        with pytest.raises(ValueError, match=str(wrong[2]) if wrong[2] > 1 else "0"):
            NStepAccumulator(FLOAT, *wrong)
    accumulator = NStepAccumulator(FLOAT, 1, 1, 0.9, 2)
    one, action, no = np.ones(1, "f"), np.zeros(1, int), np.zeros(1, bool)
    with pytest.raises(ValueError, match=r"reward.*\(2,\)"):
        accumulator.add(one, action, one, one, np.ones(2), no, no)
    with pytest.raises(ValueError, match="float64"):
        accumulator.add(np.ones(1), action, one, one, one, no, no)
    accumulator.add(one, action, one, one, one, no, no)
    accumulator.add(one, action, one, np.full(1, np.inf), one, no, no)
    with pytest.raises(ValueError, match="take"):
        accumulator.add(one, action, one, one, one, no, no)
    with pytest.raises(ValueError, match="inf"):
        accumulator.take()
    accumulator = NStepAccumulator(FLOAT, 1, 1, 0.9, 2)
    assert accumulator.flush(one, one)[1] == 0
    with pytest.raises(ValueError, match="flushed"):
        accumulator.add(one, action, one, one, one, no, no)
    with pytest.raises(ValueError, match="flushed"):
        accumulator.flush(one, one)
