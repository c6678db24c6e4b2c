"""Files that grow while their disk is full, slow, or gone."""

import errno
import logging
import os
import threading
import time

import pytest

from distrl.metrics import appended_file
from distrl.metrics.appended_file import AppendedFile

pytestmark = pytest.mark.timeout(30)
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Disk:
    """What os.write does: `room` bytes are left on it, and it may hang."""

    def __init__(self, monkeypatch):
        self.room = float("inf")
        self.answers = threading.Event()
        self.answers.set()
        self._write = os.write
        monkeypatch.setattr(appended_file.os, "write", self.write)

    def write(self, file, data):
        self.answers.wait(20.0)
        if not self.room:
            raise FULL
        written = self._write(file, data[: min(len(data), int(min(self.room, 1e9)))])
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def file(tmp_path, clock):
    made = AppendedFile(tmp_path / "file", head=b"head\n", clock=lambda: clock[0])
    yield made
    made.close()


def said(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_record_is_there_at_once_behind_one_head(tmp_path, file):
    assert not (tmp_path / "file").exists()
    file.append(b"a\n")
    assert (tmp_path / "file").read_bytes() == b"head\na\n"
    file.append(b"b\n")
    file.close()
    again = AppendedFile(tmp_path / "file", head=b"head\n")
    again.append(b"c\n")
    again.close()
    file.append(b"after the end")
    assert (tmp_path / "file").read_bytes() == b"head\na\nb\nc\n"


@pytest.mark.parametrize("room", [0, 1, 5])
def test_a_full_disk_is_named_once_and_whole_records_follow(
    tmp_path, file, disk, clock, caplog, room
):
    caplog.set_level(logging.INFO)
    file.append(b"before\n")
    disk.room = room
    for number in range(20):
        clock[0] += 1.0
        file.append(b"lost %d\n" % number)
    (line,) = said(caplog)
    assert str(tmp_path / "file") in line and "No space left on device" in line
    disk.room = float("inf")
    file.append(b"after\n")
    assert (tmp_path / "file").read_bytes() == b"head\nbefore\nafter\n"


def test_faults_that_come_and_go_are_one_until_a_minute_is_calm(
    file, disk, clock, caplog
):
    caplog.set_level(logging.INFO)
    for _ in range(30):
        for disk.room in (0, float("inf")):
            clock[0] += 1.0
            file.append(b"x\n")
    assert len(said(caplog)) == 1
    clock[0] += 60.0
    file.append(b"x\n")
    assert len(said(caplog)) == 2 and "lost 30 records" in said(caplog)[1]
    disk.room = 0
    file.append(b"x\n")
    assert len(said(caplog)) == 3 and "No space left" in said(caplog)[2]
    file.close()
    assert len(said(caplog)) == 4 and "lost 1 records" in said(caplog)[3]


def test_nobody_waits_for_a_slow_disk_and_what_it_drops_is_counted(
    tmp_path, file, disk, caplog
):
    disk.answers.clear()
    began = time.monotonic()
    for number in range(100):
        file.append(b"%d\n" % number)
    assert time.monotonic() - began < 2.0  # 0.1 s, once
    assert said(caplog) == []  # the log may be on that disk
    disk.answers.set()
    file.close()
    kept = "".join(f"{n}\n" for n in range(appended_file._CAPACITY))
    assert (tmp_path / "file").read_text() == "head\n" + kept
    assert "too slow" in said(caplog)[0] and "lost 36 records" in said(caplog)[1]


def test_a_disk_that_never_answers_is_given_up(file, disk, caplog):
    disk.answers.clear()
    file.append(b"a\n")
    file.close(timeout=0.1)
    assert "does not answer" in said(caplog)[0]
    disk.answers.set()


def test_a_folder_that_comes_back(tmp_path, caplog):
    folder = tmp_path / "folder"
    file = AppendedFile(folder / "file")
    file.append(b"a\n")
    assert "No such file or directory" in caplog.text
    folder.mkdir()
    file.append(b"b\n")
    assert (folder / "file").read_bytes() == b"b\n"
    file.close()


def test_a_file_that_was_cut_by_hand_in_a_fault(tmp_path, file, disk):
    file.append(b"a\n")
    disk.room = 1
    file.append(b"b\n")
    os.truncate(tmp_path / "file", 0)
    disk.room = float("inf")
    file.append(b"c\n")
    assert (tmp_path / "file").read_bytes() == b"head\nc\n"


def test_behind_a_fault_the_file_is_opened_again(tmp_path, file, disk):
    file.append(b"a\n")
    disk.room = 0
    file.append(b"b\n")
    (tmp_path / "file").rename(tmp_path / "old")  # as a server that has come back
    disk.room = float("inf")
    file.append(b"c\n")
    assert (tmp_path / "file").read_bytes() == b"head\nc\n"


def test_other_errors_are_raised(file, monkeypatch):
    ended = threading.Event()

    def fail(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(appended_file.os, "fstat", fail)
    file.append(b"a\n")
    monkeypatch.undo()
    while not ended.wait(0.01):
        try:
            file.append(b"b\n")
        except ZeroDivisionError:
            ended.set()
    with pytest.raises(ZeroDivisionError):
        file.close()
