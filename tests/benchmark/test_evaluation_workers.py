"""Evaluations with more workers: ratios within a round, medians over rounds."""

import sys

import pytest

from distrl.benchmark import evaluation_workers


def test_ratios_are_those_of_each_round(monkeypatch):
    secs = {1: iter([10.0, 30.0, 12.0]), 2: iter([5.0, 10.0, 8.0])}

    def evaluated(arguments, workers):
        assert arguments == ["--run_dir=x"]
        returns = [1.0, 2.0] if workers == 1 else [1.0, 2.5]
        return next(secs[workers]), {"returns": returns}

    monkeypatch.setattr(evaluation_workers, "evaluated", evaluated)
    one, two = evaluation_workers.compare(["--run_dir=x"], [1, 2], 3)
    assert one == {
        "workers": 1,
        "secs": 12.0,
        "times_as_fast": 1.0,
        "mean_return": 1.5,
        "same_returns": True,
    }
    assert two["secs"] == 8.0 and two["times_as_fast"] == 2.0
    assert two["mean_return"] == 1.75 and not two["same_returns"]


@pytest.mark.timeout(60)
def test_the_program_is_run_as_it_is(monkeypatch, tmp_path):
    path = tmp_path / "python"
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
    )
    path.chmod(0o755)
    monkeypatch.setattr(evaluation_workers.sys, "executable", str(path))
    took, words = evaluation_workers.evaluated(["--run_dir=x", "--episodes=3"], 2)
    assert took > 0
    assert words == [
        "-m",
        "distrl.evaluate",
        "--run_dir=x",
        "--episodes=3",
        "--num_workers=2",
    ]


@pytest.mark.timeout(60)
def test_a_failure_is_told(monkeypatch, tmp_path):
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such run')\n")
    path.chmod(0o755)
    monkeypatch.setattr(evaluation_workers.sys, "executable", str(path))
    with pytest.raises(RuntimeError, match="no such run"):
        evaluation_workers.evaluated(["--run_dir=x"], 1)
