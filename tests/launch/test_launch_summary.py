"""summary.json, the report, and what is read of the run's files."""

from __future__ import annotations

import json

import pytest

from launch.description import Task
from launch.processes import TaskExit
from launch.status import StatusFeed
from launch.summary import complete_summary, failure_report, last_lines, report
from launch.watch import describe_exit


def exit_of(job: str, index: int, code: int, time: float = 0.0) -> TaskExit:
    return TaskExit(Task(job, index, (), {}), code, time)


def test_a_summary_is_completed_in_place(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"env_steps": 5, "stop_time": 100.0}))
    exits = [exit_of("actor", 1, 0, 101.0), exit_of("ps", 0, 0, 103.5)]
    summary = complete_summary(path, exits, {"final_evaluation": {"episodes": 100}})
    assert json.loads(path.read_text()) == summary
    assert summary["env_steps"] == 5
    assert summary["farewell_secs"] == 3.5
    assert summary["final_evaluation"] == {"episodes": 100}
    assert summary["tasks"] == [
        {"job": "actor", "task": 1, "exit_code": 0, "restarts": 0},
        {"job": "ps", "task": 0, "exit_code": 0, "restarts": 0},
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_without_a_stop_time_there_is_no_farewell(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text("{}")
    assert "farewell_secs" not in complete_summary(path, [exit_of("ps", 0, 0)], {})


def test_a_summary_that_is_no_object_is_refused_and_kept(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text("[1]")
    with pytest.raises(ValueError, match=r"\[1\]"):
        complete_summary(path, [], {})
    assert path.read_text() == "[1]"


def test_the_report_says_what_is_known(tmp_path):
    summary = {
        "stop_reason": "max_env_steps",
        "env_steps": 1000,
        "env_steps_per_sec": 12.5,
        "channels": {"experience": {"lost": 3}, "batches": {"lost": 0}},
        "final_evaluation": {"mean_return": 499.5},
    }
    text = report(summary, tmp_path / "summary.json")
    for part in ("max_env_steps", "1000", "12.5", "499.5", "experience 3, batches 0"):
        assert part in text
    assert "None" not in report({"final_evaluation": None}, tmp_path)


@pytest.mark.parametrize(
    "code, words",
    [
        (1, "actor 1 failed with exit code 1"),
        (-9, "actor 1 failed with exit code -9 (SIGKILL)"),
        (-99, "actor 1 failed with exit code -99"),
        (3, "actor 1 ended because of another task's failure (exit code 3)"),
    ],
)
def test_exits_in_words(code, words):
    assert describe_exit(exit_of("actor", 1, code)) == words


def test_the_end_of_a_long_log(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(b"line %d \xff\n" % n for n in range(50_000)))
    lines = last_lines(path)
    assert len(lines) == 60 and lines[-1].startswith("line 49999")


def test_an_empty_log_is_said_to_be_empty(tmp_path):
    (tmp_path / "actor-1.log").touch()
    assert "empty" in failure_report(exit_of("actor", 1, 1), tmp_path)


def test_status_is_read_while_it_is_written(tmp_path):
    path = tmp_path / "ps-0.jsonl"
    feed = StatusFeed(path)
    assert feed.newest() is None
    with path.open("w") as file:
        file.write('{"n": 1}\n{"n": 2}\n{"n"')
        file.flush()
        assert feed.newest() == {"n": 2}
        assert feed.newest() is None
        file.write(": 3}\n")
    assert feed.newest() == {"n": 3}
    assert feed.newest() is None


@pytest.mark.parametrize("line", [b"{broken", b"\xff", b"[1]", b"7", b""])
def test_a_line_that_is_none_of_ours_is_passed_over(tmp_path, line):
    path = tmp_path / "ps-0.jsonl"
    feed = StatusFeed(path)
    path.write_bytes(line + b"\n")
    assert feed.newest() is None
    with path.open("a") as file:
        file.write('{"n": 1}\n')
    assert feed.newest() == {"n": 1}


def test_a_file_that_cannot_be_read_says_nothing_until_it_can(tmp_path):
    path = tmp_path / "ps-0.jsonl"
    path.mkdir()  # opening it is refused
    feed = StatusFeed(path)
    assert feed.newest() is None
    path.rmdir()
    path.write_text('{"n": 1, "text": "%s"}\n' % ("x" * 10_000))
    assert StatusFeed(path / "deeper").newest() is None
    path.write_text('{"n": 2}\n')
    feed = StatusFeed(path)
    path.write_text("")  # somebody makes room
    assert feed.newest() is None
    path.write_text('{"n": 3}\n')
    assert feed.newest() == {"n": 3}
