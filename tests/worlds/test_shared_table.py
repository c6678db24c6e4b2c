"""Numbers that several processes have."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading

import pytest

from distrl.worlds.shared_table import SharedTable

pytestmark = pytest.mark.timeout(60)

JOIN_SECS = 40.0


@pytest.fixture
def table():
    with SharedTable({"a": 0, "b": 1, "c": 1.0, "d": True, 1: False, 2: 2.0}) as made:
        yield made


def count(table, times, start):
    """Adds one so many times; a line in a process."""
    start.wait()
    for _ in range(times):
        with table.locked():
            table["a"] += 1
    table.close()


def die_locked(table, locked):
    with table.locked():
        locked.set()
        os._exit(0)


def hold(table, locked, leave):
    with table.locked():
        locked.set()
        leave.wait(JOIN_SECS)


def ended(processes):
    for process in processes:
        process.join(JOIN_SECS)
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


# A dict.


def test_it_reads_what_was_written(table):
    """W-14"""
    values = {"a": 0, "b": 1, "c": 1.0, "d": True, 1: False, 2: 2.0}
    assert dict(table) == values
    assert [type(table[key]) for key in values] == [int, int, float, bool, bool, float]
    assert list(table) == list(table.keys()) == list(values)


def test_numbers_change(table):
    """W-14"""
    table["b"] += 1
    table["c"] = -2.5
    table["d"] = False
    table[2] = 3  # an int will do for a float
    assert [table[key] for key in ("b", "c", "d", 2)] == [2, -2.5, False, 3.0]
    assert type(table[2]) is float
    assert table["a"] == 0


@pytest.mark.parametrize(
    "key, value", [("a", 2.1), ("a", True), ("a", "1"), ("d", 1), ("c", None)]
)
def test_types_do_not(table, key, value):
    """W-14"""
    before = dict(table)
    with pytest.raises(TypeError, match=f"'{key}'"):
        table[key] = value
    assert dict(table) == before


def test_keys_are_fixed(table):
    """W-14"""
    with pytest.raises(KeyError, match="missing"):
        table["missing"]
    with pytest.raises(KeyError, match="missing"):
        table["missing"] = 1
    with pytest.raises(KeyError, match="missing"):
        del table["missing"]
    assert "missing" not in table


def test_what_was_deleted_stays_away():
    """W-14"""
    with SharedTable({"a": 0, "b": 1, "c": 1.0, "d": True}) as table:
        del table["a"]
        assert (len(table), list(table), "a" in table) == (3, ["b", "c", "d"], False)
        for use in (lambda: table["a"], lambda: table.update(a=1)):
            with pytest.raises(KeyError, match="a"):
                use()


@pytest.mark.parametrize("value", [None, "1", [1]], ids=str)
def test_other_types_are_refused(value):
    with pytest.raises(TypeError, match="'x'"):
        SharedTable({"x": value})


def test_an_empty_table():
    with SharedTable({}) as table:
        assert (len(table), dict(table)) == (0, {})


def test_close():
    table = SharedTable({"a": 1})
    other = pickle.loads(pickle.dumps(table))
    other.close()
    assert table["a"] == 1
    path = table._path
    table.close()
    table.close()
    assert not os.path.exists(path)
    with pytest.raises(ValueError, match="closed"), table.locked():
        pass
    with pytest.raises(ValueError, match="closed"):
        table["a"]


def test_a_copy_is_the_same_table(table):
    other = pickle.loads(pickle.dumps(table))
    shallow = copy.copy(other)
    table["a"] = 5
    del table["b"]
    assert (other["a"], shallow["a"], "b" in other) == (5, 5, False)
    other.close()
    shallow.close()


# Its lock.


def test_a_lock_may_be_nested():
    with SharedTable({"a": 0}, lock_secs=0.05) as table:
        other = pickle.loads(pickle.dumps(table))
        with table.locked():
            table["a"] += 1  # takes it, too, and leaves it
            with pytest.raises(TimeoutError), other.locked():
                pass
        with other.locked():  # it was given back
            assert other["a"] == 1
        other.close()


def test_a_lock_is_given_back_behind_an_error(table):
    with pytest.raises(OverflowError), table.locked(), table.locked():
        raise OverflowError
    other = pickle.loads(pickle.dumps(table))
    with other.locked():
        pass
    other.close()


def test_waiting_has_a_limit():
    with SharedTable({"a": 0}, lock_secs=0.05) as table:
        other = pickle.loads(pickle.dumps(table))
        with other.locked():
            with pytest.raises(TimeoutError, match="0.05 s"), table.locked():
                pass
        with table.locked():
            errors = []
            thread = threading.Thread(target=_try_to_lock, args=(table, errors))
            thread.start()
            thread.join(JOIN_SECS)
            assert len(errors) == 1
        other.close()


def _try_to_lock(table, errors):
    try:
        with table.locked():
            pass
    except TimeoutError as error:
        errors.append(error)


def test_threads_count(table):
    start = threading.Barrier(4)
    threads = [
        threading.Thread(target=_count_in_thread, args=(table, start, 50))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_SECS)
    assert table["a"] == 200


def _count_in_thread(table, start, times):
    start.wait(JOIN_SECS)
    for _ in range(times):
        with table.locked():
            table["a"] += 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_count(table, method):
    """W-14"""
    context = multiprocessing.get_context(method)
    start = context.Event()
    processes = [
        context.Process(target=count, args=(table, 50, start)) for _ in range(5)
    ]
    for process in processes:
        process.start()
    start.set()
    assert ended(processes) == [0] * 5
    assert table["a"] == 250


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process_waits_for_the_lock(method):
    context = multiprocessing.get_context(method)
    locked, leave = context.Event(), context.Event()
    with SharedTable({"a": 0}, lock_secs=0.05) as table:
        process = context.Process(target=hold, args=(table, locked, leave))
        process.start()
        assert locked.wait(JOIN_SECS)
        with pytest.raises(TimeoutError), table.locked():
            pass
        leave.set()
        assert ended([process]) == [0]
        with table.locked():
            pass


def test_a_process_that_dies_leaves_the_lock_open(table):
    context = multiprocessing.get_context("spawn")
    locked = context.Event()
    process = context.Process(target=die_locked, args=(table, locked))
    process.start()
    assert locked.wait(JOIN_SECS)
    assert ended([process]) == [0]
    with table.locked():
        table["a"] += 1
