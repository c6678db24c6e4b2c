import json
import subprocess
import sys

import pytest

from distrl.benchmark import measuring


def test_medians_are_of_the_repeats_behind_the_warm_up():
    costs = iter([100, 1, 2, 9])  # ms of CPU for 2 units, repeat by repeat
    spent = 0

    def work():
        nonlocal spent
        spent += next(costs) * 1_000_000
        return 2

    # So short that each repeat is one call.
    found = measuring.medians(work, 3e-9, 3, lambda: {"cpu": spent})
    assert found["cpu"] == 1.0
    assert found["per_sec"] > 0


def test_medians_count_clocks_that_begin_later():
    read = iter([{}, {}, {"part": 3_000_000}])
    found = measuring.medians(lambda: 3, 1e-9, 1, lambda: next(read))
    assert found["part"] == 1.0


@pytest.mark.parametrize(
    ("secs", "repeats"), [(0, 1), (-1.0, 1), (1.0, 0), (float("nan"), 1)]
)
def test_no_time_is_refused(secs, repeats):
    with pytest.raises(ValueError, match=f"{repeats} repeats in {secs} s"):
        measuring.medians(lambda: 1, secs, repeats)


def test_sections_add_up_to_no_more_than_the_process():
    clock = measuring.SectionClock()
    before = clock()["cpu"]
    for _ in range(3):
        clock.start()
        sum(range(20_000))
        clock.end("first")
        sum(range(20_000))
        clock.end("second")
    totals = clock()
    assert set(totals) == {"first", "second", "cpu"}
    assert min(totals["first"], totals["second"]) > 0
    assert totals["first"] + totals["second"] <= totals["cpu"] - before


def test_rounded_keeps_digits_of_floats_only():
    record = {"a": 123456.0, "b": {"c": 0.00012348}, "d": 123456, "e": "x"}
    expected = {"a": 123500.0, "b": {"c": 0.0001235}, "d": 123456, "e": "x"}
    assert measuring.rounded(record) == expected


def test_printed_records_can_be_read_again(capsys):
    records = [{"name": "a", "cost": 1.5}, {"name": "longer", "cost": None}]
    measuring.print_records(records)
    text = capsys.readouterr().out
    assert text.splitlines()[:3] == ["  name  cost", "     a   1.5", "longer     -"]
    assert measuring.json_lines(text) == records


def test_output_of_a_program_and_its_failure():
    text = measuring.output_of(["json.tool", "--help"])
    assert "usage" in text
    with pytest.raises(RuntimeError, match="json.tool no_such_file: exit code [12]"):
        measuring.output_of(["json.tool", "no_such_file"])


def test_child_ends_with_its_block():
    with pytest.raises(KeyError):
        with measuring.child(["http.server", "0", "--bind", "127.0.0.1"]) as process:
            assert process.poll() is None
            raise KeyError
    assert process.returncode is not None


def test_sigterm_ends_a_program_with_its_clean_up():
    program = (
        "import os, signal\n"
        "from distrl.benchmark import measuring\n"
        "measuring.end_on_sigterm()\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    signal.pause()\n"
        "finally:\n"
        "    print('{}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert done.returncode == 143
    assert json.loads(done.stdout) == {}
