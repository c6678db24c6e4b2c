"""Damaged checkpoints, and processes that end while they save."""

import hashlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from distrl.checkpoints import checkpoint_store
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.core.errors import ConfigError


def small(number):
    return {"w": np.full(3, number, np.float32)}


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints", keep=3)


def flip_bit(path, position=None):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if position is None else position] ^= 1
    path.write_bytes(data)


def break_sentinel(path):
    (path / "COMPLETE").unlink()


def break_truncated(path):
    data = (path / "arrays.npz").read_bytes()
    (path / "arrays.npz").write_bytes(data[:-20])


def break_bit(path):
    flip_bit(path / "arrays.npz")


def break_counters(path):
    flip_bit(path / "counters.json", 40)


def break_missing(path):
    (path / "arrays.npz").unlink()


def break_binary_sentinel(path):
    (path / "COMPLETE").write_bytes(b"\xff\xfe")


def break_foreign(path):
    """Somebody else's directory, though with files of the same names."""
    text = json.dumps({"format": "other", "counters": {}})
    (path / "counters.json").write_text(text)
    (path / "COMPLETE").write_text(hashlib.sha256(text.encode()).hexdigest())


def break_emptied(path):
    shutil.rmtree(path)
    path.mkdir()


def break_file(path):
    shutil.rmtree(path)
    path.write_text("a file")


DAMAGE = [
    break_sentinel,
    break_truncated,
    break_bit,
    break_counters,
    break_missing,
    break_binary_sentinel,
    break_foreign,
    break_emptied,
    break_file,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_one_is_passed_over_and_refused_by_name(store, damage, caplog):
    good = store.save(1, small(1), {})
    bad = store.save(2, small(2), {})
    damage(bad)
    assert store.newest() == good
    with pytest.raises(ConfigError, match="000000000002"):
        store.load(bad)
    damage(good)
    assert store.newest() is None


def test_skipping_is_said(store, monkeypatch):
    said = []
    monkeypatch.setattr(
        checkpoint_store.logging,
        "warning",
        lambda text, *args: said.append(text % args),
    )
    break_sentinel(store.save(2, small(2), {}))
    store.newest()
    assert len(said) == 1 and "000000000002" in said[0]


def test_every_single_flipped_byte_is_noticed(store):
    path = store.save(1, {"w": np.zeros(2, np.uint8)}, {"n": 1})
    for name in ("arrays.npz", "counters.json", "COMPLETE"):
        original = (path / name).read_bytes()
        for position in range(0, len(original.rstrip()), 3):
            flip_bit(path / name, position)
            assert store.newest() is None, (name, position)
            (path / name).write_bytes(original)
    assert store.newest() == path


def test_a_process_killed_while_it_saves_leaves_the_previous_one(store):
    """A child ends itself at every step of a save in turn, without any clean-up."""
    code = f"""
import os, sys
import numpy as np
from distrl.checkpoints import directories
from distrl.checkpoints.checkpoint_store import CheckpointStore
store = CheckpointStore({str(store.directory)!r}, keep=3)
store.save(1, {{"w": np.ones(3)}}, {{}})
calls = 0
def count(event, args):
    global calls
    if event in ("open", "os.rename") and str(store.directory) in str(args[0]):
        calls += 1
        if calls == int(sys.argv[1]):
            os._exit(9)
sys.addaudithook(count)
store.save(2, {{"w": np.full(3, 2.0)}}, {{}})
"""
    killed = 0
    for step in range(1, 20):
        shutil.rmtree(store.directory, ignore_errors=True)
        child = subprocess.run([sys.executable, "-c", code, str(step)])
        newest = store.newest()
        number = int(newest.name)
        assert store.load(newest)[0]["w"][0] == number
        if child.returncode == 0:
            break
        assert child.returncode == 9
        killed += 1
        store.save(3, small(3), {})
        assert {p.name[0] for p in store.directory.iterdir()} == {"0"}
    assert killed >= 4 and number == 2
