import json

from distrl.benchmark import trajectories


def test_quick_run_prints_a_table_and_a_line_a_case(capsys):
    trajectories.main(["--quick"])
    lines = capsys.readouterr().out.splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(lines) == 1 + 2 * len(records) == 9
    assert [(r["case"], r["replay_proportion"]) for r in records] == [
        (case, proportion) for case in ("small", "image") for proportion in (0.0, 1.0)
    ]
    for record in records:
        costs = {k: v for k, v in record.items() if k.endswith("_cpu_us")}
        assert list(costs) == ["accumulate_cpu_us", "insert_cpu_us", "sample_cpu_us"]
        assert min(costs.values()) > 0
