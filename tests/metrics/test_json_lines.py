import json
import logging
import math

import numpy as np
import pytest

from distrl.metrics.json_lines import JsonLinesWriter


def read(path):
    def refuse(constant):
        raise ValueError(constant)

    lines = path.read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_values(tmp_path):
    writer = JsonLinesWriter(tmp_path / "a.jsonl")
    writer.write(
        {
            "int": np.int64(3),
            "float": np.float32(0.5),
            "flag": np.bool_(True),
            "nan": math.nan,
            "inf": np.float64(-math.inf),
            "array": np.array([1.0, math.nan]),
            "deep": {"x": [np.float32(math.inf), None, "text"]},
        }
    )
    assert read(tmp_path / "a.jsonl") == [
        {
            "int": 3,
            "float": 0.5,
            "flag": True,
            "nan": None,
            "inf": None,
            "array": [1.0, None],
            "deep": {"x": [None, None, "text"]},
        }
    ]


def test_lines_are_there_at_once_and_stay(tmp_path):
    path = tmp_path / "a.jsonl"
    for number in range(2):
        writer = JsonLinesWriter(path)
        writer.write({"number": number})
        assert read(path)[-1] == {"number": number}
        writer.close()
        writer.close()
    writer.write({"number": 2})
    assert read(path) == [{"number": 0}, {"number": 1}]


@pytest.mark.parametrize("path", ["/dev/full", "/nowhere/a.jsonl"])
def test_disk_errors_are_logged_once(path, caplog):
    with caplog.at_level(logging.ERROR):
        writer = JsonLinesWriter(path)
        for number in range(3):
            writer.write({"number": number})
        writer.close()
    assert len(caplog.records) == 1 and path in caplog.text


def test_other_values_are_refused(tmp_path):
    with pytest.raises(TypeError):
        JsonLinesWriter(tmp_path / "a.jsonl").write({"x": object()})
