import itertools

import numpy as np
import pytest
from episode_data import Episodes, assert_same, episode_spec, expect, play

from distrl.core.nests import concatenate
from distrl.core.records import Experience
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.memories.replay_storage import ReplayStorage, predicted_bytes


def all_live(storage):
    return storage.gather(np.arange(storage.tail, storage.head))


@pytest.mark.parametrize("stack", [1, 2, 4])
@pytest.mark.parametrize("end", [0.0, 0.3, 1.0])
def test_stacks_come_back_from_interleaved_producers(stack, end):
    producers = [Episodes(i, 1 + i, stack, end) for i in range(3)]
    shipped = [
        play(episodes, 30, 3, 0.9, 4 + i) for i, episodes in enumerate(producers)
    ]
    expected = expect(producers, 3, 0.9)
    storage = ReplayStorage(episode_spec(stack), 1000)
    for turn in itertools.zip_longest(*shipped):
        for producer, block in enumerate(turn):
            if block is not None:
                storage.insert(("actor", producer), block)
    assert storage.orphans == 0 and storage.size == len(expected)
    transitions = all_live(storage)
    assert sorted(transitions.a_tm1["name"].tolist()) == sorted(expected)
    assert_same(transitions, expected)


@pytest.mark.parametrize("end", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("capacity", "slack"), [(1, 30), (40, 30), (47, 45), (200, 60)]
)
def test_live_transitions_keep_their_frames(capacity, slack, end):
    """Ids wrap, frames are overwritten: what is live is right, and recent."""
    producers = [Episodes(i, 2, 3, end) for i in range(2)]
    shipped = [play(episodes, 200, 2, 0.9, 5) for episodes in producers]
    expected = expect(producers, 2, 0.9)
    storage = ReplayStorage(episode_spec(), capacity, slack)
    rows = 0
    for pair in zip(*shipped, strict=True):
        for producer, block in enumerate(pair):
            stored = storage.insert(producer, block)
            rows += stored.num_rows
            np.testing.assert_array_equal(storage.live(stored.ids), True)
            names = block.action["name"][stored.rows]
            newest = storage.gather(stored.ids).a_tm1["name"]
            np.testing.assert_array_equal(newest, names)
            assert storage.size <= capacity
            assert_same(all_live(storage), expected)
    assert rows == storage.head == len(expected) and storage.orphans == 0
    if end == 0.0:
        assert storage.size == capacity
    assert storage.size >= capacity // 3


def test_exactly_full():
    for capacity in (1, 8, 100):
        storage = ReplayStorage(episode_spec(), capacity)
        episodes = Episodes(1, 1, 3, end=0.0)
        for block in play(episodes, capacity, 1, 0.9, 3):
            storage.insert("a", block)
        assert (storage.tail, storage.head) == (0, capacity)
        assert_same(all_live(storage), expect([episodes], 1, 0.9))


def test_more_rows_than_the_capacity_at_once():
    episodes = Episodes(1, 2, 3, end=0.1)
    (block,) = play(episodes, 30, 2, 0.9, 100)
    storage = ReplayStorage(episode_spec(), 7)
    stored = storage.insert("a", block)
    assert stored.num_rows == storage.head == len(block.reward) > 7
    assert stored.ids.tolist() == list(range(storage.head - 7, storage.head))
    names = all_live(storage).a_tm1["name"]
    np.testing.assert_array_equal(names, block.action["name"][-7:])


@pytest.mark.parametrize("end", [0.1, 1.0])
def test_more_frames_than_there_is_room_for(end):
    episodes = Episodes(1, 2, 3, end)
    (block,) = play(episodes, 60, 2, 0.9, 100)
    storage = ReplayStorage(episode_spec(), 20, 10)  # room for 41 frames of 122
    stored = storage.insert("a", block)
    assert storage.orphans == len(block.reward) - stored.num_rows > 0
    assert storage.live(stored.ids).all()
    assert len(stored.ids) == storage.size > 0
    assert len(stored.ids) < stored.num_rows == storage.head
    names = all_live(storage).a_tm1["name"]
    np.testing.assert_array_equal(names, block.action["name"][stored.rows])
    assert_same(all_live(storage), expect([episodes], 2, 0.9))


def test_rows_over_a_lost_block_are_orphans():
    episodes = Episodes(1, 2, 3, end=0.0)
    blocks = play(episodes, 40, 3, 0.9, 5)
    storage = ReplayStorage(episode_spec(), 1000)
    for number, block in enumerate(blocks):
        if number != 3:
            storage.insert("a", block)
    # Times 15 to 19 never came: stacks of 3 reach two frames back.
    stacks = [(t, t - 1, t - 2, t + 3, t + 2, t + 1) for t in range(38)]
    shipped_with_it = range(12, 17)
    lost = [t for t in shipped_with_it] + [
        t
        for t, stack in enumerate(stacks)
        if t not in shipped_with_it and any(15 <= time < 20 for time in stack)
    ]
    assert storage.orphans == 2 * (len(lost) - len(shipped_with_it))
    names = set(all_live(storage).a_tm1["name"].tolist())
    expected = expect([episodes], 3, 0.9)
    gone = {int(episodes.name(t, e)) for t in lost for e in range(2)}
    assert names == set(expected) - gone
    assert_same(all_live(storage), expected)


def test_a_stranger_without_history_starts_with_orphans():
    episodes = Episodes(1, 1, 2, end=0.0)
    blocks = play(episodes, 20, 2, 0.9, 5)
    storage = ReplayStorage(episode_spec(2), 100)
    storage.insert("a", blocks[0])
    assert storage.insert("restarted a", blocks[1]).num_rows == 2
    assert storage.orphans == 3


def test_a_row_that_reaches_back_too_far_is_an_orphan():
    slow, fast = Episodes(1, 1, 2, end=0.0), Episodes(2, 1, 2, end=0.0)
    early, late = play(slow, 10, 2, 0.9, 5)[:2]
    storage = ReplayStorage(episode_spec(2), 100, 20)
    storage.insert("slow", early)
    for block in play(fast, 60, 2, 0.9, 5):
        storage.insert("fast", block)
    before = storage.head
    stored = storage.insert("slow", late)  # two rows need frames of `early`
    assert stored.num_rows == 2 and storage.orphans == 3
    assert storage.head == before + 2


def test_several_blocks_in_one_record():
    episodes = Episodes(1, 2, 3, end=0.2)
    blocks = play(episodes, 40, 3, 0.9, 4)
    storage = ReplayStorage(episode_spec(), 1000)
    storage.insert("a", concatenate(blocks[:4]))
    storage.insert("a", concatenate(blocks[4:]))
    expected = expect([episodes], 3, 0.9)
    assert storage.size == len(expected) and storage.orphans == 0
    assert_same(all_live(storage), expected)


def test_an_image_transition_costs_less_than_9000_bytes():
    image = ArraySpec((4, 84, 84), "uint8", num_stacked=4)
    spec = EnvironmentSpec(image, ArraySpec((), "int64", 0, 17))
    assert predicted_bytes(spec, 10**6) / 10**6 < 9000
    assert predicted_bytes(spec, 10**5) / 10**5 < 9000
    for capacity in (1, 333):
        small = episode_spec()
        assert (
            predicted_bytes(small, capacity) == ReplayStorage(small, capacity).num_bytes
        )


def experience(**changes) -> Experience:
    good = play(Episodes(1, 2, 3), 10, 2, 0.9, 20)[0]
    return good._replace(**changes)


def test_refuses_what_does_not_fit_and_stores_nothing():
    storage, good = ReplayStorage(episode_spec(), 50), experience()
    late, stream = good.time_tm1.copy(), good.stream.copy()
    late[3], stream[2] = 77, 5
    fewer = {k: v[1:] for k, v in good.frames.items()}
    more_rows = good.blocks + np.array([[0, 0, 0, 1]])
    for wrong, message in (
        ({"reward": good.reward.astype(float)}, "float64"),
        ({"action": {"other": good.reward}}, "other"),
        ({"action": {"name": good.action["name"][:, None]}}, "name"),
        ({"frames": fewer}, "22 frames"),
        ({"reward": good.reward[1:]}, f"with {len(good.reward) - 1}"),
        ({"blocks": more_rows}, f"blocks of {len(good.reward) + 1}"),
        ({"blocks": -good.blocks}, "negative"),
        ({"time_tm1": late}, "time 77"),
        ({"stream": stream}, "stream 5"),
        ({"episode_start": good.episode_start - 5}, "from -5"),
    ):
        with pytest.raises(ValueError, match=message):
            storage.insert("a", experience(**wrong))
    assert storage.head == storage.orphans == 0
    storage.insert("a", good)
    with pytest.raises(ValueError, match="2 streams.*3"):
        storage.insert("a", play(Episodes(1, 3, 3), 5, 2, 0.9, 9)[0])
    for number in (-1, storage.head):
        with pytest.raises(ValueError, match=str(number)):
            storage.gather(np.array([number]))
    for capacity, slack in ((0, None), (-3, None), (5, -1)):
        with pytest.raises(ValueError, match=str(capacity)):
            ReplayStorage(episode_spec(), capacity, slack)


def test_gathered_rows_are_copies():
    storage = ReplayStorage(episode_spec(), 4)
    blocks = play(Episodes(1, 1, 3, end=0.0), 30, 1, 0.9, 5)
    storage.insert("a", blocks[0])
    before = all_live(storage)
    kept = before.s_t["image"].copy(), before.a_tm1["name"].copy()
    for block in blocks[1:]:
        storage.insert("a", block)
    np.testing.assert_array_equal(before.s_t["image"], kept[0])
    np.testing.assert_array_equal(before.a_tm1["name"], kept[1])
