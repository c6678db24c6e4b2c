import numpy as np
import pytest

from distrl.core.specs import ArraySpec
from distrl.memories.frame_store import FrameStore
from distrl.memories.timelines import Timelines

SPEC = {"image": ArraySpec((2,), "uint8"), "number": ArraySpec((), "int64")}


def frames(first, count):
    number = np.arange(first, first + count)
    return {"image": np.stack((number, number), 1).astype("uint8"), "number": number}


@pytest.mark.parametrize("capacity", [1, 5, 8])
def test_numbers_find_frames(capacity):
    store, random = FrameStore(SPEC, capacity), np.random.default_rng(0)
    written = 0
    for _ in range(50):
        count = int(random.integers(0, 2 * capacity + 2))
        assert store.append(frames(written, count)) == written
        written += count
        assert store.oldest == max(0, written - capacity)
        live = np.arange(store.oldest, written)
        gathered = store.gather(live)
        np.testing.assert_array_equal(gathered["number"], live)
        np.testing.assert_array_equal(gathered["image"][:, 1], live % 256)


def test_gathered_frames_keep_the_shape_of_the_numbers_and_are_copies():
    store = FrameStore(SPEC, 4)
    store.append(frames(0, 4))
    gathered = store.gather(np.array([[0, 1], [2, 3]]))
    assert gathered["image"].shape == (2, 2, 2)
    store.append(frames(4, 4))
    assert gathered["number"].tolist() == [[0, 1], [2, 3]]


def test_frames_that_are_gone_are_refused():
    store = FrameStore(SPEC, 4)
    store.append(frames(0, 6))
    for number in (-1, 1, 6):
        with pytest.raises(ValueError, match=str(number)):
            store.gather(np.array([3, number]))
    with pytest.raises(ValueError, match="0"):
        FrameStore(SPEC, 0)


def blocks(*rows):
    return np.array([(first, times, streams, 0) for first, times, streams in rows])


def test_times_find_numbers():
    timeline = Timelines().of("actor")
    timeline.extend(blocks((0, 2, 3), (2, 1, 3)), 100)
    timeline.extend(blocks((3, 1, 3)), 200)
    times, stream = np.array([[0, 1], [2, 3]]), np.array([[0], [2]])
    assert timeline.numbers(times, stream).tolist() == [[100, 103], [108, 202]]
    assert timeline.numbers(np.array([4, 1028]), np.array([0])).tolist() == [-1, -1]


def test_lost_and_old_times_are_unknown():
    timeline = Timelines().of("actor")
    timeline.extend(blocks((0, 10, 1)), 0)
    timeline.extend(blocks((20, 1004, 1)), 10)  # the history has to grow
    times = np.array([0, 9, 10, 19, 20, 1023])
    assert timeline.numbers(times, np.array(0)).tolist() == [0, 9, -1, -1, 10, 1013]
    for first in range(1024, 1024 + 40 * 100, 100):
        timeline.extend(blocks((first, 100, 1)), first)
    assert timeline.numbers(times, np.array(0)).tolist() == [-1] * 6
    assert timeline.history == 2048


def test_producers_do_not_mix_and_silent_ones_are_forgotten():
    timelines = Timelines(max_producers=2)
    for number, producer in enumerate(("a", "b", "a", "c")):
        timelines.of(producer).extend(blocks((number, 1, 1)), 10 * number)
    assert len(timelines) == 2
    numbers = timelines.of("a").numbers(np.arange(4), np.array(0))
    assert numbers.tolist() == [0, -1, 20, -1]
    assert timelines.of("b").numbers(np.array([1]), np.array(0)).tolist() == [-1]


def test_timelines_go_round():
    timelines = Timelines()
    timelines.of(("actor", 3, 17)).extend(blocks((5, 2, 4)), 50)
    timelines.of("x").extend(blocks((0, 600, 1)), 90)
    other = Timelines()
    other.of("was here before")
    other.restore(timelines.state())
    assert len(other) == 2
    known = other.of(("actor", 3, 17))
    assert known.numbers(np.array([6]), np.array(3)).tolist() == [57]
    assert known.num_streams == 4
    assert other.of("x").numbers(np.array([599]), np.array(0)).tolist() == [689]
    other.restore(Timelines().state())
    assert len(other) == 0
    timelines.of(object())
    with pytest.raises(ValueError, match="object"):
        timelines.state()
