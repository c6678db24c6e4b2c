import argparse
import importlib
import os
import pathlib
import tempfile
import threading

import psutil
import pytest

from distrl.benchmark import run
from distrl.benchmark.measuring import json_lines

SUMMARY = {
    "stop_reason": "max_seconds=1 reached",
    "running_secs": 1.0,
    "env_steps": 2000,
    "learner_steps": 50,
    "env_steps_per_sec": 2000.0,
    "learner_steps_per_sec": 50.0,
    "samples_per_insert": 8.0,
    "rows": {"inserted": 1000, "sampled": 8000, "trained": 7000},
    "cpu_secs": {
        "actor": {"start_up": 5.0, "steady": 0.3},
        "memory": {"start_up": 3.0, "steady": 0.2},
        "learner": {"start_up": 3.0, "steady": 0.4},
        "ps": {"start_up": 3.0, "steady": 0.1},
    },
    "channels": {"experience": {"sent": 1000, "received": 993, "lost": 7}},
}
MEASURED = {
    "acting": {"cpu_ms": 60.0},  # of 1,000 env steps
    "replaying": {"insert_cpu_us": 10.0, "sample_cpu_us": 2.0, "update_cpu_us": 1.0},
    "learning": {"cpu_ms": 4.0},
}
TOGETHER = {**MEASURED, "acting": {"cpu_ms": 120.0}}


def test_the_same_work_is_the_cost_of_each_part_times_its_work():
    assert run.cpu_secs_of_parts(SUMMARY, MEASURED) == pytest.approx(
        {
            "actor": 2 * 0.060,
            "memory": 1000 * 10e-6 + 8000 * 2e-6 + 7000 * 1e-6,
            "learner": 50 * 0.004,
            "all": 0.12 + 0.033 + 0.2,
        }
    )


def test_result_leaves_out_the_start_up(capsys):
    flags = argparse.Namespace(config="a.gin", gin_binding=[], num_actors=2)
    record = run.result(flags, SUMMARY, {"actor": 0.25}, MEASURED, TOGETHER)
    assert record["efficiency_together"] == pytest.approx(0.24 + 0.033 + 0.2)
    assert record["efficiency"] == pytest.approx((0.12 + 0.033 + 0.2) / 1.0)
    per_1000 = record["cpu_secs_per_1000_env_steps"]
    assert per_1000 == pytest.approx(
        {"actor": 0.15, "memory": 0.1, "learner": 0.2, "ps": 0.05, "all": 0.5}
    )
    assert record["rows_lost"] == {"experience": 7}
    run.print_result(record)
    text = capsys.readouterr().out
    assert "rows lost: experience 7\n" in text
    assert json_lines(text)[0]["efficiency"] == 0.353


def test_the_round_of_median_efficiency_counts(monkeypatch):
    efficiencies = iter([0.9, 0.2, 0.5])
    monkeypatch.setattr(
        run,
        "measure_round",
        lambda _: {"efficiency": next(efficiencies), "efficiency_together": 1.0},
    )
    flags = argparse.Namespace(secs=1.0, rounds=3, part_secs=1.0, repeats=1)
    record = run.measure(flags)
    assert record["efficiency"] == 0.5
    assert record["rounds"] == [(0.2, 1.0), (0.5, 1.0), (0.9, 1.0)]


@pytest.mark.timeout(120)
def test_a_whole_run(request, tmp_path, monkeypatch, capsys):
    """The real launcher and its tasks; the parts one after the other in this process,
    which has TensorFlow already."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(run, "end_on_sigterm", lambda: None)
    monkeypatch.setattr(run, "output_of", OneByOne(capsys))
    config = request.config.rootpath / "configs/apex/cartpole.gin"
    arguments = [f"--config={config}", "--secs=3"]
    arguments += ["--num_actors=1", "--part_secs=0.1", "--repeats=2"]
    arguments += ["--gin_binding=ApexAgent.num_envs = 16"]
    # The learner trains from the first second on, however loaded the machine is.
    arguments += ["--gin_binding=Replay.min_size_to_sample = 256"]
    run.main(arguments)
    record = json_lines(capsys.readouterr().out)[-1]
    assert record["stop_reason"].startswith("max_seconds")
    assert record["env_steps"] > 0 and record["learner_steps"] > 0
    assert record["env_steps_per_sec"] > 0 and record["running_secs"] >= 3
    for key in ("cpu_secs_per_1000_env_steps", "cpu_secs"):
        assert set(record[key]) == {"actor", "memory", "learner", "ps", "all"}
        assert min(record[key].values()) > 0
    assert set(record["wait_fractions"]) == {"actor", "memory", "learner"}
    assert set(record["rows_lost"].values()) == {0}
    assert record["parts"]["together"]["acting"]["num_envs"] == 16
    assert 0 < record["efficiency"]
    assert 0 < record["efficiency_together"]
    assert list(tmp_path.iterdir()) == []
    assert not [p for p in psutil.process_iter() if belongs_to(p, tmp_path)]


class OneByOne:
    """In place of `output_of`: what the program prints when this process runs it."""

    def __init__(self, capsys):
        self._capsys, self._turn = capsys, threading.Lock()

    def __call__(self, arguments):
        name, *flags = arguments
        with self._turn:
            self._capsys.readouterr()
            importlib.import_module(name).main(flags)
            return self._capsys.readouterr().out


def belongs_to(process: psutil.Process, folder: pathlib.Path) -> bool:
    try:
        return process.pid != os.getpid() and any(
            str(folder) in argument for argument in process.cmdline()
        )
    except psutil.Error:
        return False
