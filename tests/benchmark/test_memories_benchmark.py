import json

from distrl.benchmark import memories


def test_quick_run_prints_a_table_and_a_line_a_case(capsys):
    memories.main(["--quick"])
    lines = capsys.readouterr().out.splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(lines) == 1 + 2 * len(records) == 9
    assert {(r["memory"], r["case"]) for r in records} == {
        (memory, case)
        for memory in ("UniformMemory", "PrioritizedMemory")
        for case in ("small", "image")
    }
    for record in records:
        costs = [v for k, v in record.items() if k.endswith("_cpu_ms")]
        assert len(costs) == 4 and min(costs) > 0
