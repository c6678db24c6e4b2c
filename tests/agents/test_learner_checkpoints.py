"""Checkpoints of a learner: what each life goes on from, and which ids it asks for."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from sync_fakes import FakeTask

from distrl.agents import learner_checkpoints
from distrl.agents.learner_checkpoints import LearnerCheckpoints
from distrl.agents.settings import Learning
from distrl.checkpoints import manifest as manifest_module
from distrl.checkpoints.manifest import Entry, Manifest
from distrl.core.errors import ConfigError
from distrl.lifecycle.view import View

DUMP = {"run_id": "a1", "checkpoint": 4}  # what ps 0 knew


class Life:
    """One life of learner 0, and a ps 0 that knows what a test makes it `know`."""

    def __init__(self, run_dir, num_memories=2, restart=0, resume=False, **learning):
        self.task = FakeTask("learner", run_dir)
        self.task.restart, self.task.resume = restart, resume
        self.said = []
        self.task.heartbeat = SimpleNamespace(
            dump=DUMP, say=lambda **words: self.said.append(words)
        )
        settings = Learning(**learning)
        self.checkpoints = LearnerCheckpoints(self.task, settings, num_memories)
        self.store = self.checkpoints.store

    def begin(self):
        """What it goes on from, and its first words, but for the run's id."""
        restored = self.checkpoints.restored()
        words = self.checkpoints.words(restored)
        del words["run_id"]
        return restored, words

    def knows(self, **content):
        self.task.view = View(vars(self.task.view) | content)

    def save(self, steps, last=False):
        arrays = {"w": np.full(2, float(steps))}
        self.checkpoints.save(steps, arrays, {"learner_steps": steps}, last)

    def save_whole(self, *steps):
        """Checkpoints that both memories have joined."""
        for number in steps:
            self.save(number)
            (asked,) = self.said[-1].values()
            self.knows(checkpoint=asked, snapshots={"memory/0": asked})
            self.checkpoints.look()
            self.knows(snapshots={"memory/0": asked, "memory/1": asked})
            self.checkpoints.look()

    @property
    def entries(self):
        """Of the manifest on disk."""
        return Manifest(self.store.directory / "manifest.json").entries()


@pytest.fixture
def impatient(monkeypatch):
    """Memories have no time to join a checkpoint."""
    monkeypatch.setattr(learner_checkpoints, "_PATIENCE_SECS", 0.0)


def damage(store, number):
    (store.path(number) / "arrays.npz").write_bytes(b"PK")


def run_id(life):
    return life.checkpoints.words(None)["run_id"]


# How a life begins.


def test_a_new_run_has_an_id_of_its_own(tmp_path):
    life = Life(tmp_path)
    assert life.checkpoints.restored() is None
    words = life.checkpoints.words(None)
    assert list(words) == ["run_id"] and len(words["run_id"]) >= 8
    assert (tmp_path / "run_id").read_text().strip() == words["run_id"]
    assert run_id(Life(tmp_path)) != words["run_id"]


@pytest.mark.parametrize("how", [{"restart": 1}, {"resume": True}])
def test_a_run_keeps_its_id_over_the_lives_of_its_learner(tmp_path, how):
    first = run_id(Life(tmp_path))
    assert run_id(Life(tmp_path, **how)) == first == run_id(Life(tmp_path, **how))


def test_who_died_before_the_run_had_an_id_gives_it_one(tmp_path):
    minted = run_id(Life(tmp_path, restart=1))
    assert minted and run_id(Life(tmp_path, restart=2)) == minted


def test_a_new_run_takes_nothing_from_what_lies_there(tmp_path):
    Life(tmp_path).save_whole(100)
    life = Life(tmp_path)
    assert life.begin() == (None, {}) and life.store.numbers() == [100]


@pytest.mark.parametrize("how", [{"restart": 1}, {"resume": True}])
def test_where_nothing_was_saved_it_begins_anew(tmp_path, how, caplog):
    assert Life(tmp_path, **how).begin() == (None, {})
    assert f"no checkpoint in {tmp_path}" in caplog.text


def test_a_restarted_learner_goes_on_from_its_newest(tmp_path):
    before = Life(tmp_path)
    before.save_whole(100)
    before.save(200)
    life = Life(tmp_path, restart=1)
    restored, words = life.begin()
    assert restored.path == life.store.path(200) and not restored.whole
    assert restored.arrays["w"].tolist() == [200.0, 200.0]
    assert restored.counters["learner_steps"] == 200
    assert words == {"recall": DUMP, "resumes": False}


def test_a_resumed_run_goes_on_from_the_newest_whole_one(tmp_path):
    before = Life(tmp_path)
    before.save_whole(100, 200)
    before.save(300)
    life = Life(tmp_path, resume=True)
    restored, words = life.begin()
    assert restored.path == life.store.path(200) and restored.whole
    assert restored.arrays["w"].tolist() == [200.0, 200.0]
    assert words == {"recall": DUMP, "resumes": True, "restored": 2}
    assert life.store.numbers() == [200, 100]  # that which came later is void


def test_the_learner_of_a_resumed_run_may_die_too(tmp_path):
    """Then it goes on with that run, whose members live."""
    before = Life(tmp_path)
    before.save_whole(100)
    before.save(200)
    restored, words = Life(tmp_path, restart=1, resume=True).begin()
    assert restored.counters["learner_steps"] == 200
    assert words == {"recall": DUMP, "resumes": False}


def test_without_a_whole_one_a_run_is_resumed_from_the_newest(tmp_path):
    before = Life(tmp_path)
    before.save(100)
    before.save(200)
    restored, words = Life(tmp_path, resume=True).begin()
    assert restored.counters["learner_steps"] == 200 and not restored.whole
    assert words == {"recall": DUMP, "resumes": True}


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    before = Life(tmp_path)
    before.save_whole(100, 200)
    damage(before.store, 200)
    restored, words = Life(tmp_path, resume=True).begin()
    assert restored.counters["learner_steps"] == 100
    assert words["restored"] == 1


def test_a_restarted_learner_deletes_what_is_damaged(tmp_path):
    before = Life(tmp_path)
    before.save_whole(100, 200)
    damage(before.store, 200)
    life = Life(tmp_path, restart=1)
    assert life.begin()[0].counters["learner_steps"] == 100
    assert life.store.numbers() == [100]


@pytest.mark.parametrize("content", [None, b"", b'{"format": "other"}'])
def test_without_a_manifest_it_is_the_newest(tmp_path, content):
    before = Life(tmp_path)
    before.save_whole(100)
    before.save(200)
    path = before.store.directory / "manifest.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    life = Life(tmp_path, resume=True)
    restored, words = life.begin()
    assert restored.counters["learner_steps"] == 200 and not restored.whole
    assert "restored" not in words
    life.save(300)  # and there is a manifest again
    assert life.entries == [Entry(3, 300, 2, ())]


@pytest.mark.parametrize("how", [{"num_memories": 0}, {"memory_snapshots": False}])
def test_where_memories_keep_nothing_each_one_is_whole(tmp_path, how):
    before = Life(tmp_path, **how)
    before.save(100)
    before.save(200)
    assert before.said == [{"checkpoint": 1}, {"checkpoint": 2}]
    restored, words = Life(tmp_path, resume=True, **how).begin()
    assert restored.counters["learner_steps"] == 200 and restored.whole
    assert words["restored"] == 2


def test_a_checkpoint_from_before_ps_0_had_said_anything(tmp_path):
    before = Life(tmp_path)
    before.task.heartbeat.dump = None
    before.save_whole(100)
    assert Life(tmp_path, resume=True).begin()[1] == {"restored": 1}


# While it lives.


def test_a_checkpoint_asks_the_memories_to_join(tmp_path):
    life = Life(tmp_path)
    life.save(100)
    assert life.said == [{"checkpoint": 1}]
    assert life.entries == [Entry(1, 100, 2, ())]
    arrays, counters = life.store.load(life.store.path(100))
    assert counters == {"learner_steps": 100, "checkpoint_id": 1, "run": DUMP}
    assert arrays["w"].tolist() == [100.0, 100.0]


def test_who_has_to_save_what_was_asked_for_is_not_asked_again(tmp_path):
    life = Life(tmp_path)
    life.save(100)
    life.save(200)
    life.knows(snapshots={"memory/1": 1})
    life.checkpoints.look()
    life.save(300)
    assert life.said == [{"checkpoint": 1}]
    assert life.entries == [Entry(1, 100, 2, (1,))]
    assert life.store.numbers() == [300, 200, 100]
    life.knows(snapshots={"memory/0": 1, "memory/1": 1})
    life.checkpoints.look()
    life.save(400)
    assert life.said == [{"checkpoint": 1}, {"checkpoint": 2}]
    assert life.entries == [Entry(2, 400, 2, ()), Entry(1, 100, 2, (0, 1))]


def test_after_a_while_nobody_waits_for_a_memory(tmp_path, impatient):
    life = Life(tmp_path)
    life.save(100)
    life.save(200)
    assert life.said == [{"checkpoint": 1}, {"checkpoint": 2}]
    assert [entry.learner for entry in life.entries] == [200, 100]


def test_nobody_waits_for_what_an_earlier_life_asked_for(tmp_path):
    Life(tmp_path).save(100)
    life = Life(tmp_path, restart=1)
    life.begin()
    life.save(200)
    assert life.said == [{"checkpoint": 2}]


@pytest.mark.parametrize("known, asked", [(1, 4), (3, 4), (7, 8)])
def test_ids_are_above_all_that_were_asked_for(tmp_path, known, asked):
    """By this learner, and by one whose checkpoint is gone."""
    Life(tmp_path).save_whole(100, 200, 300)
    life = Life(tmp_path, restart=1)
    life.begin()
    life.knows(checkpoint=known)
    life.save(400)
    assert life.said == [{"checkpoint": asked}]
    assert life.entries[0].checkpoint_id == asked


def test_a_resumed_run_uses_later_ids_again(tmp_path):
    before = Life(tmp_path)
    before.save_whole(100)
    before.save(200)
    life = Life(tmp_path, resume=True)
    life.begin()
    life.save(150)
    assert life.said == [{"checkpoint": 2}]
    assert life.entries == [Entry(2, 150, 2, ()), Entry(1, 100, 2, (0, 1))]


@pytest.mark.parametrize("known", [1, 2])
def test_the_last_id_is_the_one_behind_that_which_memories_know(tmp_path, known):
    """The second one, too, that ps 0 has not heard of. They have saved it before."""
    life = Life(tmp_path)
    life.save_whole(100)
    life.save(200)
    life.knows(checkpoint=known, snapshots={"memory/0": known + 1, "memory/1": 1})
    life.checkpoints.look()
    life.save(300, last=True)
    assert life.said == [{"checkpoint": 1}, {"checkpoint": 2}]
    assert life.entries[0] == Entry(known + 1, 300, 2, (0,))
    counters = life.store.load(life.store.path(300))[1]
    assert counters["checkpoint_id"] == known + 1
    life.knows(snapshots={"memory/0": known + 1, "memory/1": known + 1})
    life.checkpoints.look()
    assert life.entries[0].whole


def test_the_last_one_notes_what_had_been_reported_before(tmp_path):
    life = Life(tmp_path)
    life.save_whole(100)
    life.knows(snapshots={"memory/0": 2, "memory/1": 2})
    life.checkpoints.look()  # of an id that it has not asked for
    assert len(life.entries) == 1
    life.save(200, last=True)
    assert life.entries[0] == Entry(2, 200, 2, (0, 1))
    restored, words = Life(tmp_path, resume=True).begin()
    assert restored.counters["learner_steps"] == 200 and words["restored"] == 2


def test_a_whole_checkpoint_outlives_newer_ones(tmp_path):
    life = Life(tmp_path, checkpoints_kept=1)
    life.save_whole(100)
    for steps in (200, 300, 400):
        life.save(steps)
    assert life.store.numbers() == [400, 200, 100]  # memories may still join the 200
    life.knows(snapshots={"memory/0": 2, "memory/1": 2})
    life.checkpoints.look()
    assert Life(tmp_path, resume=True).begin()[0].path == life.store.path(200)


def test_reports_are_noted_once(tmp_path, monkeypatch):
    life = Life(tmp_path)
    life.save_whole(100)
    monkeypatch.setattr(Manifest, "complete", None)
    life.checkpoints.look()
    life.knows(phase="stopping")  # another view that says the same
    life.checkpoints.look()


def test_a_manifest_that_cannot_be_written_ends_nothing(
    tmp_path, monkeypatch, caplog, impatient
):
    def full(path, data):
        raise OSError(28, "No space left on device")

    life = Life(tmp_path)
    life.save(100)
    monkeypatch.setattr(manifest_module, "replace_file", full)
    life.knows(snapshots={"memory/0": 1, "memory/1": 1})
    life.checkpoints.look()
    assert "No space left on device" in caplog.text
    for last in (False, True):
        with pytest.raises(OSError, match="No space"):
            life.save(200, last)
    assert life.said == [{"checkpoint": 1}]
    monkeypatch.undo()
    assert life.entries == [Entry(1, 100, 2, ())]
    life.save(300, last=True)
    assert life.entries[0].learner == 300


def test_nobody_is_asked_to_join_what_was_not_saved(tmp_path):
    life = Life(tmp_path)
    life.save_whole(100)
    directory = life.store.directory
    aside = directory.rename(tmp_path / "aside")
    directory.write_text("no directory")
    with pytest.raises(OSError):
        life.save(200)
    assert life.said == [{"checkpoint": 1}]
    directory.unlink()
    aside.rename(directory)
    life.save(300)
    assert life.said[1:] == [{"checkpoint": life.entries[0].checkpoint_id}]
    assert [entry.learner for entry in life.entries] == [300, 100]


def test_a_directory_that_is_of_no_use_is_an_os_error_until_it_is(tmp_path):
    """So that training goes on, from the first checkpoint on."""
    life = Life(tmp_path)
    life.store.directory.write_text("no directory")
    with pytest.raises(OSError):
        life.save(100)
    life.store.directory.unlink()
    life.save(200)
    assert [entry.learner for entry in life.entries] == [200]


def test_without_the_directory_there_is_no_run_id(tmp_path):
    shutil.rmtree(tmp_path)
    with pytest.raises(ConfigError, match="--run_dir: .*run_id"):
        Life(tmp_path).checkpoints.words(None)
