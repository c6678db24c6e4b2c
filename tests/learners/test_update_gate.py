"""Readers come in between updates, and before the next one."""

from __future__ import annotations

import threading

import pytest
from async_fakes import WAIT_SECS, Boom, wait_until

from distrl.learners.update_gate import UpdateGate

pytestmark = pytest.mark.timeout(60)


def test_versions_count_finished_updates():
    gate = UpdateGate(4)
    with gate.update():
        assert gate.version == 4
    with gate.read(WAIT_SECS) as version:
        assert version == gate.version == 5


def test_an_update_waits_for_readers():
    gate, inside = UpdateGate(), threading.Event()

    def update():
        with gate.update():
            inside.set()

    updating = threading.Thread(target=update)
    with gate.read(WAIT_SECS) as version:
        updating.start()
        wait_until(lambda: gate._changed._waiters)
        assert not inside.is_set() and gate.version == version
    updating.join(WAIT_SECS)
    assert inside.is_set() and gate.version == 1


def test_a_waiting_reader_comes_before_the_next_update():
    gate, seen = UpdateGate(), []

    def read():
        with gate.read(WAIT_SECS) as version:
            seen.append(version)

    reading = threading.Thread(target=read)
    with gate.update():
        reading.start()
        wait_until(lambda: gate._readers)
    with gate.update():  # at once: this thread does not pause
        assert seen == [1]
    reading.join(WAIT_SECS)


def test_a_reader_that_gave_up_stands_in_nobodys_way():
    gate = UpdateGate()
    with gate.update():
        with pytest.raises(TimeoutError, match="0.0 s"):
            with gate.read(0.01):
                pass
    with gate.update():
        pass
    assert gate.version == 2


def test_readers_learn_what_an_update_raised():
    gate = UpdateGate()
    with pytest.raises(Boom):
        with gate.update():
            raise Boom
    assert gate.version == 0
    with pytest.raises(Boom):
        with gate.read(WAIT_SECS):
            pass
    with gate.update():
        pass
    with gate.read(WAIT_SECS) as version:
        assert version == 1
