"""Snapshots in the background: when they are taken, what the disk does to them."""

import errno
import threading

import numpy as np
import pytest

from distrl.checkpoints import array_archive, checkpoint_store, snapshots
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.snapshots import SnapshotWriter, load_newest, load_number

LONG = 30.0


class Gate(CheckpointStore):
    """Lets a save go on only when told to; its clock stands unless told otherwise."""

    def __init__(self, directory, keep=3):
        super().__init__(directory, keep)
        self.open, self.begun = threading.Event(), threading.Event()
        self.now, self.save_secs = 100.0, 0.0
        self.error = None

    def save(self, *args, **options):
        self.begun.set()
        assert self.open.wait(LONG)
        self.now += self.save_secs
        if self.error is not None:
            raise self.error
        return super().save(*args, **options)

    def clock(self):
        return self.now


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "snapshots")


@pytest.fixture
def writer(gate):
    made = SnapshotWriter(gate, 0.1, clock=gate.clock)
    yield made
    gate.open.set()
    made.close(LONG)


@pytest.fixture
def said(monkeypatch):
    """All that is logged."""
    lines = []
    for module in (snapshots, checkpoint_store):
        for level in ("warning", "error"):
            monkeypatch.setattr(
                module.logging, level, lambda text, *args: lines.append(text % args)
            )
    return lines


class Memory:
    """Counts its copies."""

    def __init__(self):
        self.taken, self.value = 0, 0.0

    def state(self):
        self.taken += 1
        return {"w": np.full(400_000, self.value)}


def value_of(path_or_arrays):
    return float(path_or_arrays["w"][0])


def settle(writer):
    """Waits for the snapshot under way, as an owner who has time."""
    assert writer._ended.wait(LONG)


def newest(store):
    found = []
    counters = load_newest(store, lambda arrays: found.append(value_of(arrays)))
    return (counters, *found)


def test_a_copy_is_written_while_the_memory_changes(gate, writer):
    memory = Memory()
    memory.value = 1.0
    assert writer.offer(7, memory.state, {"rows": 3}) and writer.written is None
    memory.value = 2.0
    assert gate.begun.wait(LONG) and gate.numbers() == []
    gate.open.set()
    settle(writer)
    assert writer.written == 7 and writer.failed == 0
    assert newest(gate) == ({"rows": 3}, 1.0)


def test_nothing_is_copied_while_one_is_written(gate, writer):
    memory = Memory()
    assert writer.offer(1, memory.state, {})
    assert not writer.offer(2, memory.state, {}) and memory.taken == 1
    gate.open.set()
    settle(writer)
    assert not writer.busy and gate.numbers() == [1]


def test_writing_stays_below_its_share_of_the_time(gate, writer):
    memory, gate.save_secs = Memory(), 3.0
    gate.open.set()
    assert writer.offer(1, memory.state, {})  # from 100 to 103
    settle(writer)
    for gate.now in (103.0, 129.9):
        assert not writer.offer(2, memory.state, {}) and memory.taken == 1
    gate.now = 130.0
    assert writer.offer(3, memory.state, {})
    settle(writer)
    assert gate.numbers() == [3, 1] and writer.written == 3


def test_the_copy_counts_as_time_too(gate, writer):
    def state():
        gate.now += 5.0
        return Memory().state()

    gate.open.set()
    assert writer.offer(1, state, {})
    settle(writer)
    gate.now = 149.0
    assert not writer.offer(2, state, {})
    gate.now = 150.0
    assert writer.offer(2, state, {})


def test_the_wall_clock_may_jump(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: -1e9)
    writer = SnapshotWriter(CheckpointStore(tmp_path), 1.0)
    assert writer.offer(1, Memory().state, {})
    settle(writer)
    monkeypatch.setattr("time.time", lambda: 1e12)
    assert writer.finish(2, Memory().state, {}, LONG) and writer.written == 2


def test_without_room_for_a_copy_none_is_made(gate, said):
    room = [99.0]
    writer = SnapshotWriter(
        gate, available_bytes=lambda: room[0] / 0.8, clock=gate.clock
    )
    memory = Memory()
    gate.open.set()
    assert not writer.offer(1, memory.state, {}, num_bytes=100)
    assert memory.taken == 0 and writer.failed == 1
    assert "100 bytes" in said[0] and "000000000001" in said[0]
    room[0] = 100.0
    for now, taken in ((159.9, False), (160.0, True)):  # tries again once a minute
        gate.now = now
        assert writer.offer(2, memory.state, {}, num_bytes=100) == taken
    assert len(said) == 1
    writer.close(LONG)


def test_a_copy_for_which_memory_runs_out_is_forgotten(gate, writer, said):
    def state():
        raise MemoryError("cannot allocate")

    assert not writer.offer(1, state, {}) and writer.failed == 1
    assert "cannot allocate" in said[0]


def test_what_the_disk_refuses_is_said_and_forgotten(gate, writer, said):
    gate.open.set()
    gate.error = PermissionError(errno.EACCES, "Permission denied", "/some/where")
    assert writer.offer(4, Memory().state, {})
    settle(writer)
    assert writer.failed == 1 and writer.written is None and len(said) == 1
    for word in ("snapshot 4", "Permission denied", "/some/where", "000000000004"):
        assert word in said[0]
    gate.error, gate.now = None, 1000.0
    assert writer.offer(5, Memory().state, {})
    settle(writer)
    assert writer.written == 5


def test_a_full_disk_leaves_the_one_before_and_nothing_else(
    gate, writer, said, monkeypatch
):
    gate.open.set()
    assert writer.finish(1, Memory().state, {}, LONG)
    write = array_archive._HashedOutput.write

    def full(self, data):
        if self._file.tell() > 2_000_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(array_archive._HashedOutput, "write", full)
    assert writer.offer(2, Memory().state, {})
    settle(writer)
    assert not writer.finish(3, Memory().state, {}, LONG)
    assert writer.failed == 2 and "No space left" in said[0] and "3" in said[1]
    assert [p.name for p in gate.directory.iterdir()] == ["000000000001"]
    assert newest(gate) == ({}, 0.0)


@pytest.mark.parametrize("call", ["offer", "finish", "close"])
def test_other_errors_reach_the_owner_once(gate, writer, call):
    gate.open.set()
    gate.error = RuntimeError("a bug")
    assert writer.offer(1, Memory().state, {})
    settle(writer)
    with pytest.raises(RuntimeError, match="a bug"):
        if call == "close":
            writer.close(LONG)
        elif call == "offer":
            writer.offer(2, Memory().state, {})
        else:
            writer.finish(2, Memory().state, {}, LONG)
    gate.error = None
    writer.close(LONG)
    assert writer.finish(3, Memory().state, {}, LONG)


def test_what_take_raises_is_the_callers(writer):
    with pytest.raises(ZeroDivisionError):
        writer.offer(1, lambda: {"w": 1 / 0}, {})
    assert not writer.busy


def test_finish_waits_for_one_under_way_and_heeds_no_throttle(gate, writer):
    gate.save_secs = 50.0
    memory = Memory()
    assert writer.offer(1, memory.state, {})
    threading.Timer(0.05, gate.open.set).start()
    memory.value = 9.0
    assert writer.finish(2, memory.state, {"last": True}, LONG)
    assert not writer.busy and gate.numbers() == [2, 1]
    assert newest(gate) == ({"last": True}, 9.0)


def test_finish_gives_up_what_takes_too_long(gate, monkeypatch, said):
    """The block under way ends, and nothing is left on disk."""
    block = threading.Event()
    write = array_archive._HashedOutput.write

    def slow(self, data):
        block.wait(LONG)
        return write(self, data)

    monkeypatch.setattr(array_archive._HashedOutput, "write", slow)
    gate.open.set()
    writer, memory = SnapshotWriter(gate), Memory()
    threading.Timer(0.2, block.set).start()
    assert not writer.finish(1, memory.state, {}, timeout=0.05)
    assert not writer.busy and writer.failed == 1 and "too long" in said[0]
    assert list(gate.directory.iterdir()) == [] and writer.written is None
    assert writer.finish(2, memory.state, {}, LONG)  # and it can go on


def test_finish_takes_no_copy_when_the_one_under_way_does_not_end(
    gate, monkeypatch, said
):
    monkeypatch.setattr(snapshots, "_GIVING_UP_SECS", 0.05)
    writer, memory = SnapshotWriter(gate), Memory()
    assert writer.offer(1, memory.state, {})
    assert not writer.finish(2, memory.state, {}, timeout=0.05)
    assert memory.taken == 1 and "does not answer" in said[0]
    writer.close(0.0)  # returns
    gate.open.set()
    settle(writer)


def test_close_lets_one_under_way_become_whole(gate, writer):
    assert writer.offer(1, Memory().state, {})
    threading.Timer(0.05, gate.open.set).start()
    writer.close(LONG)
    assert writer.written == 1 and not writer.busy
    writer.close(LONG)


def test_pauses_are_as_long_as_they_should_be_and_end_with_the_run(gate):
    gate.open.set()
    writer = SnapshotWriter(gate, pause_ratio=1e9)
    assert writer.offer(1, Memory().state, {})
    assert not writer._ended.wait(0.2)  # it sleeps for years after its first block
    assert writer.finish(2, Memory().state, {}, LONG)
    assert gate.numbers() == [2, 1]


def test_copies_are_let_go_when_they_are_written(gate, writer):
    state = Memory().state()
    gate.open.set()
    writer.offer(1, lambda: state, {})
    settle(writer)
    assert state == {}


def test_snapshots_of_a_run_that_went_back_go(gate, writer):
    for number in (3, 8, 9):
        CheckpointStore.save(gate, number, Memory().state(), {})
    gate.open.set()
    assert writer.finish(4, Memory().state, {}, LONG)
    assert gate.numbers() == [4, 3]


def test_protected_ids_stay(gate, writer):
    gate.open.set()
    writer.protected = {1}
    for number in range(1, 7):
        assert writer.finish(number, Memory().state, {}, LONG)
    assert gate.numbers() == [6, 5, 4, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [((0.0,), "0.0"), ((1.5,), "1.5"), ((0.1, -1.0), "-1.0")],
)
def test_bad_settings_are_named(gate, settings, message):
    with pytest.raises(ValueError, match=message):
        SnapshotWriter(gate, *settings)


# Loading.


def test_nothing_to_load(tmp_path, said):
    store = CheckpointStore(tmp_path / "none")
    assert load_newest(store, pytest.fail) is None and said == []
    assert load_number(store, 3, pytest.fail) is None
    assert len(said) == 1 and "000000000003" in said[0]


def test_a_number_is_loaded_and_no_other(tmp_path):
    store, found = CheckpointStore(tmp_path), []
    for number in (1, 2):
        store.save(number, {"w": np.full(1, number)}, {"rows": number})
    counters = load_number(store, 1, lambda arrays: found.append(value_of(arrays)))
    assert counters == {"rows": 1} and found == [1.0]


def test_one_that_does_not_fit_is_named_and_the_older_one_used(tmp_path, said):
    store, found = CheckpointStore(tmp_path), []
    for number in (1, 2, 3):
        store.save(number, {"w": np.full(1, number)}, {"rows": number})

    def restore(arrays):
        if value_of(arrays) > 1:
            raise ValueError(f"capacity {value_of(arrays)}")
        found.append(value_of(arrays))

    assert load_newest(store, restore) == {"rows": 1} and found == [1.0]
    assert "000000000003" in said[0] and "capacity 3.0" in said[0]
    assert "000000000002" in said[1] and "capacity 2.0" in said[1]


def test_other_errors_of_restore_are_not_hidden(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(1, {}, {})
    with pytest.raises(KeyError):
        load_newest(store, lambda arrays: arrays["missing"])
