import io
import math

import pytest

from distrl.metrics.console import Progress, format_line

STATUS = {
    "phase": "running",
    "goal_fraction": 0.374,
    "goal": "max_env_steps=300000",
    "secs_left": 3725.4,
    "env_steps": 112345,
    "env_steps_per_sec": 6210.4,
    "learner_steps": 3510,
    "learner_steps_per_sec": 194.2,
    "mean_return": 187.25,
    "evaluation_return": 500.0,
    "memory_size": 100000,
    "memory_capacity": 200000,
    "channels": {"experience": {"size": 1, "capacity": 8}, "batches": {"size": 2}},
    "waits": {"actor": 0.03, "memory": 0.5, "learner": 0.62, "ps": 1.0},
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_whole_status_in_a_line():
    assert format_line(STATUS) == (
        "phase running | goal 37 %, max_env_steps=300000, 1:02:05 left"
        " | env steps 112,345 (6,210/s) | learner steps 3,510 (194/s)"
        " | return 187.2, greedy 500.0 | memory 100,000/200,000"
        " | channels experience 1/8, batches 2"
        " | actors wait 3 % for room in experience | memory waits 50 % for rows or room"
        " | learner waits 62 % for batches | ps waits 100 %"
    )


@pytest.mark.parametrize("key", STATUS)
def test_every_key_may_be_missing_or_none(key):
    without = {name: value for name, value in STATUS.items() if name != key}
    assert format_line(without) == format_line({**STATUS, key: None})
    assert format_line(without) != format_line(STATUS)


@pytest.mark.parametrize("key", sorted(STATUS.keys() - {"memory_capacity"}))
def test_every_key_may_stand_alone(key):
    assert format_line({key: STATUS[key]})


def test_empty_and_unknown_numbers():
    assert format_line({}) == ""
    nan = {"mean_return": math.nan, "secs_left": math.inf, "waits": {"learner": None}}
    assert format_line(nan) == "goal ? left | return nan"


def test_plain_lines_at_most_every_period():
    now, stream = [0.0], io.StringIO()
    with Progress("apex", 10.0, stream, clock=lambda: now[0]) as progress:
        for second in range(25):
            now[0] = float(second)
            progress.update({"env_steps": second})
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines == [f"apex: env steps {steps}" for steps in (0, 10, 20, 24)]


def test_live_table_on_a_terminal():
    stream = Terminal()
    progress = Progress("apex [cartpole]", stream=stream)
    progress.update(STATUS)
    progress.update({**STATUS, "goal": "[weird"})
    progress.close()
    progress.close()
    shown = stream.getvalue()
    for text in ("apex [cartpole]", "learner waits 62 % for batches", "[weird"):
        assert text in shown
    assert shown.endswith("\x1b[?25h")  # the cursor is visible again


def test_no_status_no_line():
    stream = io.StringIO()
    Progress("apex", stream=stream).close()
    assert stream.getvalue() == ""
