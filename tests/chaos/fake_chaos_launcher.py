"""Stands in for `launch.local`: tasks that only wait, one of which is to be killed, and
what a run leaves; $FAKE_CHAOS says what is wrong with it."""

import json
import os
import signal
import subprocess
import sys
import time

from launch.flags import parse

WRONG = os.environ.get("FAKE_CHAOS", "")
WAITING = "import sys; sys.stdin.read()"
STAYING = "import time; time.sleep(600)"
LIMIT_SECS = 60.0


def start(name, run_dir):
    job, index = name.split("/")
    flags = [f"--job_name={job}", f"--task_index={index}", f"--run_dir={run_dir}"]
    program = STAYING if WRONG == "leaves a task" else WAITING
    return subprocess.Popen(
        [sys.executable, "-c", program, *flags],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def write_rows(run_dir, sent, received):
    """An actor has sent two messages and died; a memory has got the first."""
    folder = run_dir / "rows"
    folder.mkdir(exist_ok=True)
    actor = "actor/0/5"
    lines = [f"sent experience memory/0 {actor} {n} 10\n" for n in (1, 2)]
    (folder / "actor-0-5.txt").write_text("".join(lines))
    line = f"received experience memory/0 {actor} 1 10\n"
    (folder / "memory-0-6.txt").write_text(line)
    return {"experience": {"sent": sent, "received": received, "lost": sent - received}}


def summary(run_dir, names, killed):
    tasks = [name.split("/") for name in names]
    return {
        "stop_reason": "max_seconds=5.0 reached",
        "running_secs": 5.0,
        "env_steps": 10,
        "learner_steps": 1,
        "failures": {"ps": 0, "memory": 0, "learner": 0, "actor": int(bool(killed))},
        "channels": write_rows(run_dir, 20, 9 if WRONG == "ledger" else 10),
        "tasks": [{"job": j, "task": int(i), "exit_code": 0} for j, i in tasks],
    }


def wait_for_death(processes):
    """The name of a task that has died; "" when none has within the limit."""
    deadline = time.monotonic() + LIMIT_SECS
    while time.monotonic() < deadline:
        dead = [name for name, p in processes.items() if p.poll() is not None]
        if dead:
            return dead[0]
        time.sleep(0.05)  # several processes cannot be waited for at once
    return ""


def main():
    run, _ = parse(None)
    (run.run_dir / "metrics").mkdir(parents=True)
    (run.run_dir / "logs").mkdir()
    names = ["ps/0", "memory/0", "learner/0", "actor/0", "actor/1"]
    processes = {name: start(name, run.run_dir) for name in names}
    print(f"run directory: {run.run_dir}", flush=True)
    status = {"time": time.time(), "phase": "running"}
    (run.run_dir / "metrics" / "ps-0.jsonl").write_text(json.dumps(status) + "\n")
    killed = wait_for_death(processes)
    job, _, index = killed.partition("/")
    words = f"{job} {index} failed with exit code -{signal.SIGKILL:d} (SIGKILL)"
    print(f"{words}; starting it again (1 of 20 an hour)", flush=True)
    if WRONG == "never ends":
        time.sleep(LIMIT_SECS)
    for name, process in processes.items():
        if (WRONG, name) != ("leaves a task", "ps/0"):
            process.kill()
            process.wait()
    text = json.dumps(summary(run.run_dir, names, killed))
    (run.run_dir / "summary.json").write_text(text)
    return 1 if WRONG == "exit code" else 0


if __name__ == "__main__":
    sys.exit(main())
