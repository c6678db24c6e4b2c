"""Which directories a task takes for its run, and what becomes of an earlier one."""

import pathlib

import pytest

from distrl.core.errors import ConfigError, RunEnding
from distrl.train import prepare_run_dir, set_aside

JOBS = ("ps", "memory", "learner", "actor")
OTHERS = ("ps", "memory", "actor")  # but for the learner, which writes the files
LIVES = [(False, 0), (False, 1), (True, 0), (True, 1)]  # resume, restart


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "runs" / "cartpole"


@pytest.fixture
def begun(run_dir):
    """The directory of a run whose learner has begun."""
    for job in JOBS:
        prepare_run_dir(run_dir, job, False, 0)
    (run_dir / "config.gin").write_text("Run.seed = 1")
    return run_dir


@pytest.fixture
def ended(begun):
    """That of a run that was summed up."""
    (begun / "summary.json").write_text("first")
    return begun


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("job", JOBS)
def test_a_new_run_has_its_directories(run_dir, job):
    prepare_run_dir(run_dir, job, False, 0)
    assert names(run_dir) == ["logs", "metrics"]
    prepare_run_dir(run_dir, job, False, 0)  # as the next task does


# A run that is under way, or was killed.


@pytest.mark.parametrize("job", OTHERS)
@pytest.mark.parametrize("resume, restart", LIVES)
def test_others_join_in_whatever_life(begun, job, resume, restart):
    """A learner may be there before them."""
    prepare_run_dir(begun, job, resume, restart)


@pytest.mark.parametrize("job", OTHERS)
def test_others_may_be_there_before_the_learner(run_dir, job):
    prepare_run_dir(run_dir, job, True, 0)


def test_a_learner_begins_no_second_run_there(begun):
    with pytest.raises(ConfigError) as caught:
        prepare_run_dir(begun, "learner", False, 0)
    for words in (f"{begun} holds another run", "--resume", "--restart=1"):
        assert words in str(caught.value)
    assert (begun / "config.gin").read_text() == "Run.seed = 1"


@pytest.mark.parametrize("resume, restart", LIVES[1:])
def test_a_learner_goes_on_with_the_run_that_is_there(begun, resume, restart):
    prepare_run_dir(begun, "learner", resume, restart)
    assert names(begun) == ["config.gin", "logs", "metrics"]


def test_a_learner_that_died_before_it_wrote_anything_comes_again(run_dir):
    prepare_run_dir(run_dir, "learner", False, 1)
    assert names(run_dir) == ["logs", "metrics"]


@pytest.mark.parametrize("restart", [0, 1])
def test_without_a_run_there_is_nothing_to_resume(run_dir, restart):
    with pytest.raises(ConfigError, match=f"--resume: there is no run in {run_dir}"):
        prepare_run_dir(run_dir, "learner", True, restart)
    assert not run_dir.exists()


# A run that has ended.


@pytest.mark.parametrize("job", ["ps", "memory", "learner"])
def test_a_run_that_has_ended_is_kept_from_another(ended, job):
    with pytest.raises(ConfigError) as caught:
        prepare_run_dir(ended, job, False, 0)
    assert f"{ended} holds a run that has ended; --resume" in str(caught.value)
    assert names(ended) == ["config.gin", "logs", "metrics", "summary.json"]


@pytest.mark.parametrize("restart", [0, 1])
def test_an_actor_that_comes_too_late_leaves_in_order(ended, restart):
    with pytest.raises(RunEnding, match=f"{ended} has already ended"):
        prepare_run_dir(ended, "actor", False, restart)


@pytest.mark.parametrize("job", ["ps", "memory"])
def test_what_is_started_again_too_late_is_told_so(ended, job):
    with pytest.raises(ConfigError, match="has ended"):
        prepare_run_dir(ended, job, False, 1)


@pytest.mark.parametrize("job", OTHERS)
@pytest.mark.parametrize("restart", [0, 1])
def test_a_resumed_run_has_ended_once_and_others_do_not_mind(ended, job, restart):
    prepare_run_dir(ended, job, True, restart)
    assert (ended / "summary.json").read_text() == "first"  # the learner's to move


def test_the_learner_of_a_resumed_run_sets_the_summary_aside(ended):
    prepare_run_dir(ended, "learner", True, 0)
    assert not (ended / "summary.json").exists()
    assert (ended / "summary.1.json").read_text() == "first"
    (ended / "summary.json").write_text("second")
    prepare_run_dir(ended, "learner", True, 0)
    assert (ended / "summary.1.json").read_text() == "first"
    assert (ended / "summary.2.json").read_text() == "second"


def test_a_summary_is_set_aside_once_in_a_resumed_run(ended):
    """What is there when its learner comes again, the learner has written."""
    prepare_run_dir(ended, "learner", True, 0)
    (ended / "summary.json").write_text("second")
    prepare_run_dir(ended, "learner", True, 1)
    assert (ended / "summary.json").read_text() == "second"
    assert not (ended / "summary.2.json").exists()


def test_the_next_free_number_may_lie_between(tmp_path):
    for number in (1, 3):
        (tmp_path / f"summary.{number}.json").write_text(str(number))
    for text in ("two", "four"):
        (tmp_path / "summary.json").write_text(text)
        set_aside(tmp_path / "summary.json")
    texts = [(tmp_path / f"summary.{n}.json").read_text() for n in (1, 2, 3, 4)]
    assert texts == ["1", "two", "3", "four"]


# A directory that is of no use.


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("place", ["", "..", "metrics", "logs"])
def test_a_file_in_the_place_of_a_directory_is_named(run_dir, job, place):
    file = run_dir.parent if place == ".." else run_dir / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("no directory")
    with pytest.raises(ConfigError) as caught:
        prepare_run_dir(run_dir, job, False, 0)
    assert str(caught.value).startswith(f"--run_dir: cannot use {run_dir}: ")
    assert file.read_text() == "no directory"


@pytest.mark.parametrize("call", ["exists", "rename", "mkdir"])
def test_a_directory_that_belongs_to_somebody_else_is_named(ended, monkeypatch, call):
    """Root, who may run these tests, is not refused anything."""

    def refuse(path, *args, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(pathlib.Path, call, refuse)
    with pytest.raises(ConfigError) as caught:
        prepare_run_dir(ended, "learner", True, 0)
    assert str(caught.value).startswith(f"--run_dir: cannot use {ended}: ")
    assert "Permission denied" in str(caught.value)
