"""Directories that appear whole or not at all."""

import pytest

from distrl.checkpoints.directories import (
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
