"""Snapshots that are damaged, whose writer is killed, or whose disk is full."""

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from test_checkpoint_damage import DAMAGE

from distrl.checkpoints import snapshots
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.snapshots import load_newest

CHILD = """
import sys
import numpy as np
from absl import logging
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.snapshots import SnapshotWriter
store = CheckpointStore(sys.argv[1], keep=2)
writer = SnapshotWriter(store, max_share=1.0, pause_ratio=0.0)
def state(value, size=300_000):
    return {"a": np.full(size, value), "b": np.full(size, value)}
"""


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "snapshots")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_one_is_named_and_the_older_one_used(store, damage, monkeypatch):
    said, found = [], []
    monkeypatch.setattr(
        snapshots.logging, "error", lambda text, *args: said.append(text % args)
    )
    store.save(1, {"w": np.ones(9)}, {"rows": 1})
    damage(store.save(2, {"w": np.zeros(9)}, {"rows": 2}))
    assert load_newest(store, found.append) == {"rows": 1}
    assert found[0]["w"].tolist() == [1.0] * 9
    assert len(said) == 1 and "000000000002" in said[0]
    assert any(
        reason in said[0] for reason in ("incomplete", "not match", "not in the format")
    )


@pytest.mark.timeout(60)
def test_killed_at_any_moment_the_newest_one_is_whole(store):
    """Each child goes on where the killed one was, over what it left."""
    code = (
        CHILD
        + """
number = max(store.numbers(), default=0)
while True:
    number += 1
    writer.finish(number, lambda: state(number), {"number": number}, 30.0)
    print(writer.written, flush=True)
"""
    )
    random, written = np.random.default_rng(0), 0
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(store.directory)], stdout=subprocess.PIPE
        )
        try:
            for _ in range(random.integers(1, 6)):
                written = int(child.stdout.readline())
            threading.Event().wait(random.random() * 0.03)  # any moment of a save
        finally:
            child.send_signal(signal.SIGKILL)
            rest = child.communicate(timeout=30)[0].split()
        written = max([written, *map(int, rest)])
        found = []
        number = load_newest(store, found.append)["number"]
        assert number in (written, written + 1)
        assert set(found[0]["a"]) == set(found[0]["b"]) == {number}
        assert store.numbers()[0] == number


@pytest.mark.timeout(60)
def test_a_full_disk_is_survived(store):
    """The system refuses bytes beyond a limit to the size of files."""
    code = (
        CHILD
        + """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
assert writer.finish(1, lambda: state(1, 1000), {}, 30.0)
assert not writer.finish(2, lambda: state(2), {}, 30.0)
assert (writer.written, writer.failed) == (1, 1)
assert writer.finish(3, lambda: state(3, 1000), {}, 30.0)
"""
    )
    child = subprocess.run(
        [sys.executable, "-c", code, str(store.directory)],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert child.returncode == 0, child.stderr
    assert "File too large" in child.stderr and "000000000002" in child.stderr
    assert sorted(p.name for p in store.directory.iterdir()) == [
        "000000000001",
        "000000000003",
    ]
    assert load_newest(store, lambda arrays: None) == {}
