"""Stands in for `launch.local`: reads its flags, and leaves a run's results at once."""

import json
import os
import sys
import time

from launch.flags import parse

LAG = 1.5
BEFORE_STATUS, RUNNING_SECS = 0.5, 20


def summary():
    return {
        "env_steps": 4000,
        "running_secs": 8.0,
        "stop_reason": "max_seconds=8 reached",
        "cpu_secs": {"actor": {"steady": 3.0}, "ps": {"steady": 1.0}},
        "rounds": {"rounds": 4, "secs": 5.0, "overhead_secs": 0.4},
    }


def lines_by_task(end):
    """A run that ran from `end` − 20 s to `end`. The learner begins 10 s later, at 2
    steps/s; each of 2 actors makes 100 env steps/s."""
    ages = range(RUNNING_SECS, -1, -1)
    actor = [
        {"time": end - age, "totals": {"env_steps": 100 * (RUNNING_SECS - age)}}
        for age in ages
    ]
    learner = [
        {
            "time": end - age,
            "totals": {"learner_steps": 2 * (10 - age)} if age < 10 else {},
            "gauges": {"policy_lag": LAG + (1 if age % 2 else -1)} if age < 10 else {},
        }
        for age in ages
    ]
    status = [
        {"time": end - age, "phase": "running", "waits": {"learner": 0.75, "actor": 0}}
        for age in ages
    ]
    late = {"phase": "stopping", "waits": {"learner": 1.0, "actor": 1.0}}
    status.append({"time": end + 5, **late})
    learner.append({**learner[-1], "time": end + 5, "gauges": {"policy_lag": 1e6}})
    return {"actor-0": actor, "actor-1": actor, "learner-0": learner, "ps-0": status}


def write(run_dir, end):
    (run_dir / "metrics").mkdir(parents=True)
    for task, lines in lines_by_task(end).items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (run_dir / "metrics" / f"{task}.jsonl").write_text(text)
    (run_dir / "summary.json").write_text(json.dumps(summary()))


def main():
    run, flags = parse(None)
    with open(os.environ["FAKE_LAUNCHER_FLAGS"], "w") as file:
        json.dump({**vars(flags), "file": str(run.config)}, file)
    write(run.run_dir, time.time())
    print(f"run directory: {run.run_dir}")
    return int(os.environ.get("FAKE_LAUNCHER_EXIT_CODE", "0"))


if __name__ == "__main__":
    sys.exit(main())
