"""Checkpoints: round trips, damage, what is kept."""

import itertools
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from distrl.checkpoints import array_archive, checkpoint_store
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.core.errors import ConfigError

ARRAYS = {
    "online/torso/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "file": np.array([True, False]),
    "half": np.array([[1.5, -2.0]], ml_dtypes.bfloat16),
    "frames": np.arange(8, dtype=np.uint8).reshape(2, 2, 2),
    "learning/beta1_power": np.float32(0.9),
    "scalar half": np.array(0.5, ml_dtypes.bfloat16),
    "big-endian": np.arange(3, dtype=">f4"),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "nothing.npy": np.zeros((0, 3), np.int64),
    "text": np.array(["a", "böse"]),
    "no text": np.array([], np.str_),
    "two blocks": np.arange(600_001, dtype=np.int64),
}
COUNTERS = {"env_steps": 2**40, "mean": 0.5, "best": -np.inf, "run_id": "a1", "x": [1]}


def small(number):
    return {"w": np.full(3, number, np.float32)}


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints", keep=3)


def numbers(store):
    return sorted(int(p.name) for p in store.directory.iterdir() if p.name.isdigit())


def test_round_trip(store):
    path = store.save(7, ARRAYS, COUNTERS)
    assert path == store.directory / "000000000007" == store.newest()
    arrays, counters = CheckpointStore(store.directory).load(path)
    assert counters == COUNTERS and list(arrays) == list(ARRAYS)
    for name, expected in ARRAYS.items():
        assert arrays[name].shape == expected.shape
        assert arrays[name].dtype.name == expected.dtype.name
        np.testing.assert_array_equal(arrays[name], expected)


def test_numpy_reads_the_arrays_too(store):
    path = store.save(7, ARRAYS, {})
    with np.load(path / "arrays.npz") as archive:
        np.testing.assert_array_equal(
            archive["online/torso/kernel"], ARRAYS["online/torso/kernel"]
        )


def test_a_pause_learns_of_every_block_how_long_it_took(store, monkeypatch):
    ticks, pauses = itertools.count(), []
    monkeypatch.setattr(array_archive.time, "monotonic", lambda: float(next(ticks)))
    arrays = {"w": np.zeros(9_000_000, np.uint8), "b": np.zeros(1)}
    path = store.save(1, arrays, {}, pause=pauses.append)
    assert set(pauses) == {1.0} and len(pauses) >= 3 + 1
    assert store.load(path)[0]["w"].shape == (9_000_000,)


def test_a_pause_can_end_a_save(store):
    store.save(1, small(1), {})

    def pause(seconds):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        store.save(2, small(2), {}, pause=pause)
    assert [p.name for p in store.directory.iterdir()] == ["000000000001"]


def test_numbers_whole_ones_and_those_above_one(store):
    for number in (3, 7, 5):
        path = store.save(number, small(number), {})
        assert path == store.path(number)
    (store.path(7) / "COMPLETE").unlink()
    assert store.numbers() == [7, 5, 3] and str(store) == str(store.directory)
    assert [store.is_whole(n) for n in (3, 5, 7, 9)] == [True, True, False, False]
    store.drop_above(5)
    assert store.numbers() == [5, 3]
    assert sorted(p.name[-1] for p in store.directory.iterdir()) == ["3", "5"]


def test_what_cannot_be_deleted_is_no_failure_of_a_save(store, monkeypatch):
    def fail(path):
        raise PermissionError(13, "Permission denied", str(path))

    said = []
    monkeypatch.setattr(checkpoint_store, "remove_directory", fail)
    monkeypatch.setattr(
        checkpoint_store.logging, "error", lambda text, *args: said.append(text % args)
    )
    for number in (1, 2, 3, 4):
        store.save(number, small(number), {})
    assert store.numbers() == [4, 3, 2, 1] and "000000000001" in said[0]


def test_numpy_numbers_are_counters_too(store):
    path = store.save(1, {}, {"steps": np.int64(5), "mean": np.float32(0.5)})
    assert store.load(path) == ({}, {"steps": 5, "mean": 0.5})


@pytest.mark.parametrize(
    ("arrays", "counters", "message"),
    [
        ({"x": np.array([object()])}, {}, "object"),
        ({"x": np.zeros(2, [("a", "i4")])}, {}, "dtype"),
        ({"x": np.array([b"text"])}, {}, "dtype"),
        ({}, {"x": object()}, "JSON"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    store, arrays, counters, message
):
    store.save(1, small(1), {})
    with pytest.raises(ValueError, match=message):
        store.save(2, arrays, counters)
    assert [p.name for p in store.directory.iterdir()] == ["000000000001"]


def test_the_newest_few_are_kept_and_the_best(store):
    store.save_named("best", small(0), {"return": 9})
    for number in (5, 3, 10, 20, 100):
        store.save(number, small(number), {})
    assert numbers(store) == [10, 20, 100]
    assert store.newest().name == "000000000100"
    assert store.load(store.directory / "best")[1] == {"return": 9}


def test_a_save_is_kept_even_when_newer_numbers_fill_the_store(store):
    """A run that went back: its own checkpoint must not be deleted at once."""
    for number in (10, 20, 30):
        store.save(number, small(number), {})
    path = store.save(5, small(5), {})
    assert path.exists() and numbers(store) == [5, 20, 30]


def test_numbers_order_as_numbers(store):
    store.save(999_999_999_999, small(1), {})
    store.save(1_000_000_000_000, small(2), {})
    assert store.newest().name == "1000000000000"


def test_the_same_number_is_replaced(store):
    store.save(4, small(1), {"time": 1})
    store.save(4, small(2), {"time": 2})
    assert store.load(store.newest())[1] == {"time": 2}
    assert [p.name for p in store.directory.iterdir()] == ["000000000004"]


def test_named_ones_are_replaced_and_leave_nothing_behind(store):
    for number in range(4):
        path = store.save_named("best", small(number), {"number": number})
        arrays, counters = store.load(path)
        assert counters == {"number": number} and arrays["w"][0] == number
        assert len(list(store.directory.iterdir())) == 2  # the link and one directory
    assert store.newest() is None


def test_a_named_one_is_there_while_it_is_replaced(store, monkeypatch):
    store.save_named("best", small(1), {"number": 1})
    monkeypatch.setattr(os, "replace", None)  # the process ends before the link moves
    with pytest.raises(TypeError):
        store.save_named("best", small(2), {"number": 2})
    assert store.load(store.directory / "best")[1] == {"number": 1}
    monkeypatch.undo()
    store.save_named("best", small(3), {"number": 3})
    assert store.load(store.directory / "best")[1] == {"number": 3}


@pytest.mark.parametrize("name", ["", "Best", "best/1", "..", "12", "best.0"])
def test_bad_names_are_refused(store, name):
    with pytest.raises(ValueError, match="name"):
        store.save_named(name, {}, {})


def test_no_directory_no_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path / "none")
    assert store.newest() is None and not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match="none"):
        store.load(tmp_path / "none")


def test_other_things_in_the_directory_are_left_alone(store):
    store.save(1, small(1), {})
    (store.directory / "notes.txt").write_text("mine")
    (store.directory / "12").mkdir()
    for number in range(2, 9):
        store.save(number, small(number), {})
    assert (store.directory / "notes.txt").exists() and (
        store.directory / "12"
    ).exists()


@pytest.mark.parametrize("keep", [0, -1])
def test_bad_numbers_are_refused(tmp_path, keep):
    with pytest.raises(ValueError, match=str(keep)):
        CheckpointStore(tmp_path, keep)
    with pytest.raises(ValueError, match="-3"):
        CheckpointStore(tmp_path).save(-3, {}, {})


def test_tensorflow_is_not_needed():
    code = (
        "import sys, distrl.checkpoints.checkpoint_store\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
