"""Directories that appear whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from distrl.checkpoints.directories import (
    naming,
    point_link,
    publish_directory,
    remove_directory,
    remove_leftovers,
    replace_file,
)


def write(text):
    return lambda path: (path / "file").write_text(text)


def names(path):
    return sorted(p.name for p in path.iterdir())


def test_a_directory_appears_and_is_replaced(tmp_path):
    target = tmp_path / "deep" / "target"
    publish_directory(target, write("one"))
    publish_directory(target, write("two"))
    assert (target / "file").read_text() == "two"
    assert names(target.parent) == ["target"]


def test_what_fails_leaves_the_old_one_and_nothing_else(tmp_path):
    def fail(path):
        write("half")(path)
        raise OSError("disk full")

    publish_directory(tmp_path / "target", write("one"))
    with pytest.raises(OSError, match="disk full"):
        publish_directory(tmp_path / "target", fail)
    assert names(tmp_path) == ["target"]
    assert (tmp_path / "target" / "file").read_text() == "one"


def test_it_is_not_seen_before_it_is_whole(tmp_path):
    seen = []

    def look(path):
        write("one")(path)
        seen.append((tmp_path / "target").exists())

    publish_directory(tmp_path / "target", look)
    assert seen == [False]


def test_leftovers_of_a_killed_call_go(tmp_path):
    for name in (".a.new", ".b.old", "c"):
        (tmp_path / name).mkdir()
        write("x")(tmp_path / name)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["c"]


def test_a_link_moves(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        point_link(tmp_path / "link", tmp_path / name)
        assert (tmp_path / "link").resolve() == tmp_path / name
    assert names(tmp_path) == ["link", "one", "two"]


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "deep" / "file"
    for data in (b"one", b"two"):
        replace_file(path, data)
        assert path.read_bytes() == data and names(path.parent) == ["file"]


def test_a_directory_goes_in_one_rename(tmp_path, monkeypatch):
    for name in ("a", "b"):
        publish_directory(tmp_path / name, write("x"))
    remove_directory(tmp_path / "a")
    assert names(tmp_path) == ["b"]
    monkeypatch.setattr("shutil.rmtree", lambda *args, **options: None)  # killed
    remove_directory(tmp_path / "b")
    assert names(tmp_path) == [".b.old"]
    monkeypatch.undo()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == []


def full(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as by write: no name


@pytest.mark.parametrize("lowest", ["write_bytes", "fsync", "replace"])
def test_a_full_disk_is_named_and_a_file_stays_as_it_was(tmp_path, monkeypatch, lowest):
    path = tmp_path / "file"
    replace_file(path, b"one")
    with monkeypatch.context() as patches:
        patches.setattr(Path if lowest == "write_bytes" else os, lowest, full)
        with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
            replace_file(path, b"two")
    assert path.read_bytes() == b"one" and names(tmp_path) == ["file"]
    replace_file(path, b"three")
    assert path.read_bytes() == b"three"


@pytest.mark.parametrize("lowest", ["write_text", "fsync", "rename"])
def test_a_full_disk_is_named_and_a_directory_stays(tmp_path, monkeypatch, lowest):
    path = tmp_path / "target"
    publish_directory(path, write("one"))
    with monkeypatch.context() as patches:
        patches.setattr(Path if lowest == "write_text" else os, lowest, full)
        with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
            publish_directory(path, write("two"))
    assert (path / "file").read_text() == "one" and names(tmp_path) == ["target"]
    publish_directory(path, write("three"))
    assert (path / "file").read_text() == "three"


def test_errors_that_have_a_name_or_a_text_of_their_own_keep_it(tmp_path):
    for error in (FileNotFoundError(2, "no", "other"), OSError("text")):
        with pytest.raises(OSError) as caught, naming(tmp_path):
            raise error
        assert caught.value is error and str(tmp_path) not in str(error)
