"""Which checkpoints and snapshots belong together."""

import json
import os

import numpy as np
import pytest

from distrl.checkpoints import manifest as manifest_module
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.manifest import Entry, Manifest
from distrl.core.errors import ConfigError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoints" / "manifest.json"


@pytest.fixture
def store(path):
    return CheckpointStore(path.parent, keep=2)


def begin(manifest, *ids, num_memories=2, whole=False):
    """Learner steps are a hundred times the id."""
    for number in ids:
        manifest.begin(number, 100 * number, num_memories)
        for index in range(num_memories if whole else 0):
            assert manifest.complete(number, index)


def test_an_empty_one(path):
    manifest = Manifest(path)
    assert manifest.newest_whole() is None and manifest.pending() is None
    assert manifest.protected() == set() and manifest.entries() == []
    assert not path.parent.exists()


def test_whole_is_what_all_memories_have_completed(path):
    manifest = Manifest(path)
    begin(manifest, 1)
    assert manifest.newest_whole() is None
    assert manifest.complete(1, 1) and manifest.complete(1, 1)
    assert manifest.newest_whole() is None and manifest.pending().memories == (1,)
    assert manifest.complete(1, 0)
    assert manifest.newest_whole() == Entry(1, 100, 2, (0, 1))
    assert manifest.pending() is None
    begin(manifest, 2)
    assert manifest.newest_whole().checkpoint_id == 1
    assert manifest.pending() == Entry(2, 200, 2, ())
    assert manifest.protected() == {100, 200}


def test_without_snapshots_each_is_whole(path):
    manifest = Manifest(path)
    begin(manifest, 4, num_memories=0)
    assert manifest.newest_whole() == Entry(4, 400, 0, ())


def test_it_is_on_disk_after_every_step(path):
    manifest = Manifest(path)
    for step in (
        lambda: begin(manifest, 1, whole=True),
        lambda: begin(manifest, 2),
        lambda: manifest.complete(2, 1),
        lambda: manifest.complete(2, 0),
    ):
        step()
        assert Manifest(path).entries() == manifest.entries()
    assert [p.name for p in path.parent.iterdir()] == ["manifest.json"]


def test_the_newest_few_are_kept_and_always_the_newest_whole_one(path):
    manifest = Manifest(path, keep=3)
    begin(manifest, 1, 2, whole=True)
    begin(manifest, *range(3, 10))
    for seen in (manifest, Manifest(path)):
        assert [e.checkpoint_id for e in seen.entries()] == [9, 8, 7, 2]
        assert seen.newest_whole().checkpoint_id == 2
        assert seen.protected() == {900, 800, 700, 200}
    assert not manifest.complete(3, 0)  # forgotten
    assert manifest.complete(8, 0) and manifest.complete(8, 1)
    begin(manifest, 10)
    assert [e.checkpoint_id for e in manifest.entries()] == [10, 9, 8]


def test_a_run_that_went_back_replaces_what_came_later(path):
    manifest = Manifest(path)
    begin(manifest, 1, 2, 3, 4, whole=True)
    manifest.begin(3, 250, 1)
    assert [(e.checkpoint_id, e.learner) for e in manifest.entries()] == [
        (3, 250),
        (2, 200),
        (1, 100),
    ]
    assert manifest.newest_whole().checkpoint_id == 2


def test_the_learners_checkpoint_must_be_there_and_undamaged(path, store):
    manifest = Manifest(path)
    for number in (1, 2, 3):
        store.save(100 * number, {"w": np.ones(3)}, {})
    begin(manifest, 1, 2, 3, 4, whole=True)  # 1 is deleted, 4 was never saved
    assert manifest.newest_whole().checkpoint_id == 4
    assert manifest.newest_whole(store).checkpoint_id == 3
    (store.path(300) / "COMPLETE").unlink()
    assert manifest.newest_whole(store).checkpoint_id == 2
    data = (store.path(200) / "arrays.npz").read_bytes()
    (store.path(200) / "arrays.npz").write_bytes(data[:-9])
    assert manifest.newest_whole(store) is None


def test_protected_checkpoints_outlive_newer_ones(path, store):
    manifest = Manifest(path, keep=2)
    for number in range(1, 9):
        arrays = {"w": np.ones(3)}
        store.save(100 * number, arrays, {}, protected=manifest.protected())
        begin(manifest, number, whole=number in (1, 3))
    assert store.numbers() == [800, 700, 600, 300]  # 600 goes with the next
    assert manifest.newest_whole(store).checkpoint_id == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot read"),
        (b"\xff\xfe", "cannot read"),
        (b'{"format": "distrl manifest 1", "ent', "cannot read"),
        (b"[]", "format"),
        (b'{"format": "other", "entries": []}', "format"),
        (b'{"format": "distrl manifest 1"}', "entries"),
        ({"learner": -1}, "-1"),
        ({"learner": 1.5}, "1.5"),
        ({"checkpoint_id": True}, "True"),
        ({"memories": [0, 2]}, "memories"),
        ({"memories": 3}, "entries"),
        ({"more": 1}, "more"),
    ],
)
def test_a_damaged_one_is_named_and_set_aside(path, content, reason, monkeypatch):
    said = []
    monkeypatch.setattr(
        manifest_module.logging, "error", lambda text, *args: said.append(text % args)
    )
    if isinstance(content, dict):
        entry = Entry(1, 100, 2, (0,))._asdict() | content
        text = json.dumps({"format": "distrl manifest 1", "entries": [entry]})
        content = text.encode()
    path.parent.mkdir()
    path.write_bytes(content)
    manifest = Manifest(path)
    for call in (manifest.entries, manifest.newest_whole, manifest.pending):
        with pytest.raises(ConfigError, match=f"manifest.json.*{reason}"):
            call()
    assert path.read_bytes() == content and said == []
    begin(manifest, 5, whole=True)
    assert Manifest(path).newest_whole().checkpoint_id == 5
    assert path.with_name("manifest.json.damaged").read_bytes() == content
    assert len(said) == 1 and reason in said[0]


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_what_cannot_be_written_changes_nothing(path, monkeypatch, call):
    manifest = Manifest(path)
    begin(manifest, 1, whole=True)
    begin(manifest, 2)
    before = manifest.entries()

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    for write in (lambda: begin(manifest, 3), lambda: manifest.complete(2, 0)):
        with pytest.raises(OSError, match="No space"):
            write()
    monkeypatch.undo()
    assert manifest.entries() == before == Manifest(path).entries()
    assert [p.name for p in path.parent.iterdir()] == ["manifest.json"]
    assert manifest.complete(2, 0) and Manifest(path).pending().memories == (0,)


def test_said_again_it_is_not_written_again(path, monkeypatch):
    manifest = Manifest(path)
    begin(manifest, 1, whole=True)
    monkeypatch.setattr(manifest_module, "replace_file", None)
    assert manifest.complete(1, 1) and not manifest.complete(7, 1)


def test_bad_numbers_are_named(path):
    manifest = Manifest(path)
    with pytest.raises(ValueError, match="keep .* 0"):
        Manifest(path, 0)
    with pytest.raises(ValueError, match="-3"):
        manifest.begin(1, -3, 2)
    begin(manifest, 1)
    for index in (-1, 2):
        with pytest.raises(ValueError, match=f"memory {index} of 2"):
            manifest.complete(1, index)
