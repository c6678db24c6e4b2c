"""The ledger: what the view's totals say about a run, as a file."""

import json
import time

import pytest

from distrl.lifecycle.ledger import CHANNELS, ledger, write_ledger
from distrl.lifecycle.view import NOTHING_YET


class FakeView:
    """A view with these totals, else as before the run."""

    def __init__(self, totals, job_totals=None, **fields):
        self.__dict__.update(vars(NOTHING_YET))
        self.__dict__.update(totals=totals, job_totals=job_totals or {}, **fields)


def test_counts_come_out_as_they_were_counted():
    totals = {"env_steps": 1200.0, "episodes": 3.0, "learner_steps": 40.0}
    for number, channel in enumerate(CHANNELS):
        totals |= {f"sent/{channel}": 10.0 + number, f"received/{channel}": 9.0}
        totals |= {f"lost/{channel}": 1.0 + number}
    found = ledger(FakeView(totals, running_secs=4.0, stop_reason="enough"), 9.0)
    assert (found["env_steps"], found["episodes"], found["learner_steps"]) == (
        1200,
        3,
        40,
    )
    assert found["channels"]["priorities"] == {
        "sent": 12,
        "received": 9,
        "lost": 3,
        "duplicates": 0,
    }
    assert found["env_steps_per_sec"] == 300.0
    assert found["learner_steps_per_sec"] == 10.0
    assert (found["wall_secs"], found["stop_reason"]) == (9.0, "enough")


@pytest.mark.parametrize(
    ("inserted", "ratio"), [(0, None), (100, None), (150, 8.0), (500, 1.0)]
)
def test_samples_per_insert_counts_from_the_minimum(inserted, ratio):
    totals = {"inserted": inserted, "sampled": 400.0, "min_size_to_sample": 100.0}
    assert ledger(FakeView(totals), 1.0)["samples_per_insert"] == ratio


def test_start_up_is_told_apart_from_steady_cpu():
    jobs = {"actor": {"cpu_secs": 10.0, "startup_cpu_secs": 6.5}, "ps": {}}
    assert ledger(FakeView({}, jobs), 1.0)["cpu_secs"] == {
        "actor": {"start_up": 6.5, "steady": 3.5},
        "ps": {"start_up": 0.0, "steady": 0.0},
    }


def test_the_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "summary.json"
    write_ledger(path, FakeView({"env_steps": 5.0}), time.monotonic() - 2.0)
    found = json.loads(path.read_text())
    assert found["env_steps"] == 5 and found["wall_secs"] >= 2.0
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]
    with pytest.raises(FileNotFoundError):
        write_ledger(tmp_path / "no" / "summary.json", NOTHING_YET, 0.0)
