"""Snapshots of a memory: asked for, written beside its work, and found again."""

import functools
import threading

import numpy as np
import pytest
from sync_fakes import FakeTask

from distrl.agents import memory_snapshots
from distrl.agents.memory_snapshots import MemorySnapshots
from distrl.checkpoints import snapshots as snapshots_module
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.snapshots import SnapshotWriter
from distrl.lifecycle.view import View

LONG = 30.0
INDEX = 3


class Memory:
    """Three rows of one value."""

    num_bytes = 24

    def __init__(self):
        self.value, self.taken = 0.0, 0

    def state(self):
        self.taken += 1
        return {"rows": np.full(3, self.value)}

    def restore(self, state):
        if state["rows"].shape != (3,):
            raise ValueError(f"expected 3 rows, got {len(state['rows'])}")
        self.value = float(state["rows"][0])


class Disk:
    """Writes when it is open, or not; each time takes `secs` of a clock of its own."""

    def __init__(self):
        self.open, self.begun = threading.Event(), threading.Event()
        self.open.set()
        self.now, self.secs = 100.0, 0.0
        self.room = 1e9  # bytes of main memory
        self.error = None

    def store(self, *arguments):
        """In place of a CheckpointStore."""
        store = CheckpointStore(*arguments)
        save = store.save

        def slow_save(*args):
            self.begun.set()
            assert self.open.wait(LONG)
            self.now += self.secs
            if self.error is not None:
                raise self.error
            return save(*args)

        store.save = slow_save
        return store

    def clock(self):
        return self.now


class Life:
    """One life of memory 3, and a learner that asks it for what a test wants."""

    def __init__(self, run_dir, wanted=True, restart=0, checkpoint=0, restored=0):
        self.task = FakeTask("memory", run_dir, shutdown_secs=LONG)
        self.task.index, self.task.restart = INDEX, restart
        self.task.gauges["memory_size"] = 3
        self.asks(checkpoint, restored=restored)
        self.memory = Memory()
        self.snapshots = MemorySnapshots(self.task, self.memory, wanted)

    def asks(self, checkpoint, **content):
        content = {"checkpoint": checkpoint, **content}
        self.task.view = View(vars(self.task.view) | content)

    def settle(self):
        """Waits for the snapshot under way."""
        assert self.snapshots._writer._ended.wait(LONG)

    def saves(self, checkpoint, value):
        """A snapshot of this value; the disk must have the time."""
        self.memory.value = value
        self.asks(checkpoint)
        self.snapshots.look()
        self.settle()
        self.snapshots.look()
        assert self.told == checkpoint

    @property
    def told(self):
        """The id that goes with the beats."""
        return self.task.gauges.get("snapshot")

    @property
    def restored_value(self):
        """What it has after a restoration; 0 where it begins empty."""
        self.snapshots.restore()
        return self.memory.value


@pytest.fixture
def disk(monkeypatch):
    disk = Disk()
    writer = functools.partial(SnapshotWriter, clock=disk.clock)
    monkeypatch.setattr(memory_snapshots, "SnapshotWriter", writer)
    monkeypatch.setattr(memory_snapshots, "CheckpointStore", disk.store)
    monkeypatch.setattr(memory_snapshots, "available_bytes", lambda: disk.room)
    return disk


@pytest.fixture
def make(tmp_path, disk):
    """Calls of Life; all are closed."""
    made = []

    def make(**arguments):
        made.append(Life(tmp_path, **arguments))
        return made[-1]

    yield make
    disk.open.set()
    disk.error = None
    for life in made:
        life.snapshots.close()


@pytest.fixture
def saved(tmp_path):
    return CheckpointStore(tmp_path / f"memory-{INDEX}")


def damage(store, number):
    (store.path(number) / "arrays.npz").write_bytes(b"PK")


# Saving.


def test_nothing_is_saved_before_it_is_asked_for(make, saved):
    life = make()
    life.snapshots.look()
    assert life.memory.taken == 0 and saved.numbers() == []
    assert "snapshot" not in life.task.gauges


def test_what_is_asked_for_is_saved_under_its_id_and_told(make, saved):
    life = make()
    life.saves(4, value=1.0)
    arrays, counters = saved.load(saved.path(4))
    assert arrays["rows"].tolist() == [1.0] * 3 and counters == {"rows": 3}
    for _ in range(3):
        life.snapshots.look()
    assert life.memory.taken == 1 and saved.numbers() == [4]


def test_it_is_written_while_the_memory_goes_on(make, disk, saved):
    life = make()
    disk.open.clear()
    life.memory.value = 1.0
    life.asks(4)
    life.snapshots.look()
    assert disk.begun.wait(LONG)
    life.memory.value = 2.0
    life.snapshots.look()
    assert life.told is None and saved.numbers() == []  # it is not whole yet
    disk.open.set()
    life.settle()
    life.snapshots.look()
    assert life.told == 4
    assert saved.load(saved.path(4))[0]["rows"][0] == 1.0


def test_the_one_asked_for_meanwhile_is_next(make, disk, saved):
    life = make()
    disk.open.clear()
    for wanted in (4, 5, 6):
        life.asks(wanted)
        life.snapshots.look()
    assert life.memory.taken == 1
    disk.open.set()
    life.settle()
    life.saves(6, value=3.0)
    assert saved.numbers() == [6, 4]


def test_saving_takes_a_tenth_of_the_time(make, disk, saved):
    disk.secs = 3.0  # from 100 to 103
    life = make()
    life.saves(4, value=1.0)
    life.asks(5)
    for disk.now in (103.0, 129.0):
        life.snapshots.look()
        assert life.memory.taken == 1
    disk.now = 131.0
    life.saves(5, value=2.0)  # it has not been forgotten
    assert saved.numbers() == [5, 4]


def test_the_newest_few_are_kept(make, disk, saved):
    life = make()
    for number in range(1, 8):
        life.saves(number, value=1.0)
    assert saved.numbers() == [7, 6, 5, 4, 3]


def test_what_was_asked_for_before_it_came_is_not_its_own(make):
    life = make(checkpoint=4)
    life.snapshots.look()
    assert life.memory.taken == 0
    life.saves(5, value=1.0)


def test_without_room_for_a_copy_none_is_made(make, disk):
    disk.room = 25.0  # of which it takes 80 %
    life = make()
    life.asks(4)
    life.snapshots.look()
    life.snapshots.finish()
    assert life.memory.taken == 0 and life.told is None
    disk.room, disk.now = 1e9, 1e6
    life.saves(4, value=1.0)


def test_a_memory_that_shall_not_saves_nothing(make, tmp_path):
    life = make(wanted=False)
    life.asks(4)
    life.snapshots.look()
    life.snapshots.finish()
    assert life.memory.taken == 0 and life.told is None
    assert list(tmp_path.iterdir()) == []


def test_what_the_disk_refuses_ends_nothing(make, saved):
    saved.directory.write_text("no directory")
    life = make()
    life.asks(4)
    life.snapshots.look()
    life.settle()
    life.snapshots.look()
    life.snapshots.finish()
    assert life.memory.taken >= 2 and life.told is None
    saved.directory.unlink()
    life.saves(5, value=1.0)


def test_a_fault_in_the_background_ends_the_task(make, disk):
    life = make()
    disk.error = RuntimeError("a bug")
    life.asks(4)
    life.snapshots.look()
    life.settle()
    life.asks(5)
    with pytest.raises(RuntimeError, match="a bug"):
        life.snapshots.look()
    assert life.told is None


# The end.


def test_the_last_one_has_the_id_behind_the_one_that_all_know(make, disk, saved):
    disk.secs = 50.0  # there would be no time for another one
    life = make()
    life.saves(4, value=1.0)
    life.memory.value = 2.0
    life.task.gauges["memory_size"] = 2
    life.snapshots.finish()
    assert life.told == 5 and saved.numbers() == [5, 4]
    arrays, counters = saved.load(saved.path(5))
    assert arrays["rows"][0] == 2.0 and counters == {"rows": 2}
    assert not life.snapshots._writer.busy


def test_the_last_one_of_a_run_without_checkpoints(make, saved):
    life = make()
    life.snapshots.finish()
    assert life.told == 1 and saved.numbers() == [1]


def test_the_last_one_waits_for_the_one_under_way(make, disk, saved):
    life = make()
    disk.open.clear()
    life.asks(4)
    life.snapshots.look()
    assert disk.begun.wait(LONG)
    life.asks(5)  # there is no time for this one
    life.snapshots.look()
    threading.Timer(0.05, disk.open.set).start()
    life.snapshots.finish()
    assert life.told == 6 and saved.numbers() == [6, 4]


def test_the_end_of_a_run_does_not_wait_for_the_disk(make, disk, saved, monkeypatch):
    monkeypatch.setattr(snapshots_module, "_GIVING_UP_SECS", 0.05)
    life = make()
    life.task.timeouts = FakeTask("memory", None, shutdown_secs=0.05).timeouts
    disk.open.clear()
    life.snapshots.finish()  # returns
    assert life.memory.taken == 1 and life.told is None
    disk.open.set()
    life.settle()
    assert saved.numbers() == []  # it was given up


def test_closing_lets_the_one_under_way_become_whole(make, disk, saved):
    life = make()
    disk.open.clear()
    life.asks(4)
    life.snapshots.look()
    threading.Timer(0.05, disk.open.set).start()
    life.snapshots.close()
    assert not life.snapshots._writer.busy and saved.numbers() == [4]
    life.snapshots.close()


def test_there_may_be_nothing_to_close(make, tmp_path):
    make().snapshots.close()
    assert list(tmp_path.iterdir()) == []


# Another life.


@pytest.fixture
def lived(make):
    """Snapshots 4, 5 and 6 of the values 1, 2 and 3."""
    life = make()
    for number, value in ((4, 1.0), (5, 2.0), (6, 3.0)):
        life.saves(number, value)
    life.snapshots.close()


def test_a_new_run_takes_nothing_from_what_lies_there(make, lived):
    assert make().restored_value == 0.0


def test_a_restarted_memory_goes_on_from_its_newest(make, lived):
    life = make(restart=1, checkpoint=7)
    assert life.restored_value == 3.0
    assert life.told is None  # that one was told in the life before
    life.saves(8, value=4.0)


def test_one_that_is_damaged_is_passed_over(make, lived, saved):
    damage(saved, 6)
    assert make(restart=1).restored_value == 2.0


def test_one_of_another_memory_is_passed_over(make, lived, saved):
    saved.save(7, {"rows": np.ones(9)}, {"rows": 9})
    assert make(restart=1).restored_value == 3.0


@pytest.mark.parametrize("restored", [4, 5, 6])
def test_a_resumed_run_goes_on_from_what_belongs_together(make, lived, restored):
    assert make(restored=restored).restored_value == restored - 3.0


def test_a_memory_of_a_resumed_run_may_die_too(make, lived, saved):
    """Before it has saved anything: what it had in the run before is void."""
    assert make(restored=5).restored_value == 2.0
    assert saved.numbers() == [5, 4]
    assert make(restored=5, restart=1).restored_value == 2.0


def test_a_run_that_has_gone_back_leaves_nothing_of_what_came_later(make, lived, saved):
    life = make(checkpoint=3, restored=4)
    life.snapshots.restore()
    life.saves(5, value=9.0)
    assert saved.numbers() == [5, 4]
    assert make(restart=1, restored=4).restored_value == 9.0


@pytest.mark.parametrize("number", [5, 7])
def test_without_the_one_that_belongs_to_it_a_resumed_memory_begins_empty(
    make, lived, saved, caplog, number
):
    """Not with another one, which would not fit what the learner goes on from."""
    damage(saved, 5)
    assert make(restored=number).restored_value == 0.0
    assert f"begins empty: no snapshot in {saved}" in caplog.text


def test_a_restarted_memory_without_snapshots_begins_empty(make, saved, caplog):
    life = make(restart=1)
    assert life.restored_value == 0.0
    assert f"begins empty: no snapshot in {saved}" in caplog.text
    life.saves(1, value=1.0)


def test_a_directory_that_cannot_be_read_is_an_empty_one(make, saved):
    saved.directory.write_text("no directory")
    assert make(restart=1).restored_value == 0.0
    assert make(restored=4).restored_value == 0.0
