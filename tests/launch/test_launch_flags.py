"""The launcher's command line."""

from __future__ import annotations

import pytest

from distrl.lifecycle.failure_policy import FailurePolicies
from launch.bootstrap import ROOT
from launch.flags import parse
from launch.local import main


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A configuration in the current folder, which has nothing else."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.gin").write_text("")
    return tmp_path / "some.gin"


def test_flags_become_one_description(config, tmp_path):
    run, _ = parse(
        "--num_ps=2 --num_memories=3 --num_actors=4 --run_dir=out some.gin".split()
    )
    assert (run.num_ps, run.num_memories, run.num_learners, run.num_actors) == (
        2,
        3,
        1,
        4,
    )
    assert run.config == config and run.run_dir == tmp_path / "out"
    assert run.gin_bindings == ()


def test_limits_and_seed_become_bindings_before_the_users_own(config):
    run, _ = parse(
        [
            "some.gin",
            "--seed=0",
            "--max_env_steps=30",
            "--max_learner_steps=40",
            "--max_seconds=1.5",
            "--target_return=-2",
            "--on_failure=actor=restart(3)",
            "--on_failure=memory=ignore",
            "--gin_binding=A.b = 1",
            "--gin_binding=A.c = 'x y'",
        ]
    )
    assert run.gin_bindings == (
        "Run.seed = 0",
        "StopConditions.max_env_steps = 30",
        "StopConditions.max_learner_steps = 40",
        "StopConditions.max_seconds = 1.5",
        "StopConditions.target_return = -2.0",
        "FailurePolicies.actor = 'restart(3)'",
        "FailurePolicies.memory = 'ignore'",
        "A.b = 1",
        "A.c = 'x y'",
    )
    assert run.failures == FailurePolicies(actor="restart(3)", memory="ignore")


def test_a_run_dir_of_this_second_and_folder_is_the_default(config, tmp_path):
    first, _ = parse(["some.gin"])
    assert first.run_dir.parent == tmp_path / "runs"
    assert first.run_dir.name.startswith("some-2")
    first.run_dir.mkdir(parents=True)
    second, _ = parse(["some.gin"])
    assert second.run_dir != first.run_dir


def test_a_configuration_is_looked_for_in_the_repository_too(config):
    run, _ = parse(["pyproject.toml"])
    assert run.config == ROOT / "pyproject.toml"


@pytest.mark.parametrize(
    "flags, parts",
    [
        (["gone.gin"], ["CONFIG", "existing file", "gone.gin"]),
        (["some.gin", "--num_actors=0"], ["--num_actors", "at least 1", "'0'"]),
        (["some.gin", "--num_ps=-1"], ["--num_ps", "at least 1", "'-1'"]),
        (["some.gin", "--num_memories=two"], ["--num_memories", "whole", "'two'"]),
        (["some.gin", "--num_learners=0"], ["--num_learners", "at least 1", "'0'"]),
        (
            ["some.gin", "--num_learners=2"],
            ["--num_learners", "not supported yet", "2"],
        ),
        (["some.gin", "--seed=-3"], ["--seed", "at least 0", "'-3'"]),
        (["some.gin", "--max_env_steps=0"], ["--max_env_steps", "at least 1", "'0'"]),
        (["some.gin", "--max_seconds=inf"], ["--max_seconds", "seconds", "'inf'"]),
        (["some.gin", "--max_seconds=0"], ["--max_seconds", "above 0", "'0'"]),
        (["some.gin", "--target_return=nan"], ["--target_return", "finite", "'nan'"]),
        (["some.gin", "--run_dir=."], ["--run_dir", "not exist yet"]),
        (["some.gin", "--num_actor=3"], ["--num_actor=3"]),
        (["some.gin", "--on_failure=fail"], ["--on_failure", "JOB=POLICY", "'fail'"]),
        (
            ["some.gin", "--on_failure=act=fail"],
            ["--on_failure", "actor", "'act=fail'"],
        ),
        (["some.gin", "--on_failure=actor=restart"], ["actor", "(n", "'restart'"]),
        (["some.gin", "--on_failure=ps=ignore"], ["FailurePolicies.ps", "'ignore'"]),
    ],
)
def test_bad_input_is_refused_in_one_line(config, capsys, flags, parts):
    with pytest.raises(SystemExit) as refusal:
        parse(flags)
    assert refusal.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and message.endswith("\n")
    assert all(part in message for part in parts), message


def test_print_only_prints_a_line_a_task_and_creates_nothing(config, tmp_path, capsys):
    assert main(["some.gin", "--print_only", "--num_actors=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all("-m distrl.train" in line for line in lines)
    assert "--job_name=actor --task_index=2" in lines[-1]
    assert not any("watch_stdin" in line for line in lines)
    assert list(tmp_path.iterdir()) == [config]


def test_a_run_dir_that_cannot_be_made_is_refused(config, capsys):
    assert main(["some.gin", "--run_dir=some.gin/run"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "some.gin/run" in message
