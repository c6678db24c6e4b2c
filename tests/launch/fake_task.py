"""Stands in for distrl.train: the same flags, a run without any work.

The first argument is JSON: {"<job> <index>": behaviour}, or a list of them, one for
each start. Without one, a task is up until the run stops and then exits with 0; ps 0
stops it and leaves last, on SIGTERM, or as these keys say:
"short": true          stops the run when all tasks are up, and what "until…" says is so
"until": "<file>"      this file is there
"until_gone": n        n tasks are gone
"stopping": true       says in its status lines when it stops the run
"lost": "<job>/<n>"    says there, once all are up, that this task is lost
"policies": {…}        says there from the start that these are the run's
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PLAN = json.loads(sys.argv[1])
FLAGS = dict(f.lstrip("-").partition("=")[::2] for f in sys.argv[2:])
NAME = f"{FLAGS['job_name']} {FLAGS['task_index']}"
RUN_DIR = Path(FLAGS["run_dir"])
LIFE = int(FLAGS.get("restart", "0"))
BEHAVIOUR = PLAN.get(NAME, "")
if isinstance(BEHAVIOUR, list):
    BEHAVIOUR = BEHAVIOUR[LIFE] if LIFE < len(BEHAVIOUR) else ""
NUM_TASKS = int(FLAGS["num_actors"]) + sum(
    len(FLAGS[f"{job}_hosts"].split(",")) for job in ("ps", "memory", "learner")
)


def note(kind, text=""):
    folder = RUN_DIR / kind
    folder.mkdir(exist_ok=True)
    draft = folder.with_name(f".{kind}-{NAME}")
    draft.write_text(text)
    draft.replace(folder / NAME)


def count(kind):
    return len(list((RUN_DIR / kind).glob("*")))


def num_gone(kind):
    """Tasks that have noted it and are gone, which the launcher has noticed."""
    pids = [int(path.read_text()) for path in (RUN_DIR / kind).glob("*")]
    return sum(not os.path.exists(f"/proc/{pid}") for pid in pids)


def wait_until(condition):
    """True when the condition holds, False on SIGTERM, an error after 20 s."""
    end = time.monotonic() + 20
    while not condition():
        if signal.sigtimedwait({signal.SIGTERM}, 0.01):
            return False
        if time.monotonic() > end:
            sys.exit(f"{NAME}: waited too long")
    return True


def watch_stdin():
    os.read(0, 1)  # no buffer, whose lock a daemon thread would hold at the exit
    os._exit(5)


def say(**status):
    with open(RUN_DIR / "metrics" / "ps-0.jsonl", "a") as metrics:
        metrics.write(json.dumps(status) + "\n")


def be_ps_0():
    if "policies" not in PLAN:
        (RUN_DIR / "metrics").mkdir()
        with open(RUN_DIR / "metrics" / "ps-0.jsonl", "w") as metrics:
            metrics.write('{"env_steps": 1}\n{"env_steps": 2}\n{"env_st')
    if wait_until(lambda: count("up") == NUM_TASKS):
        if "lost" in PLAN:
            say(eps=0)  # ends the line that was begun
            say(phase="running", lost={PLAN["lost"]: time.time_ns()})
        until, num = RUN_DIR / PLAN.get("until", ""), PLAN.get("until_gone", 0)
        wait_until(
            lambda: PLAN.get("short") and until.exists() and num_gone("up") >= num
        )
    if "stopping" in PLAN:
        say(eps=0)
        say(phase="stopping")
    note("stop")
    wait_until(lambda: count("done") + num_gone("fallen") == NUM_TASKS - 1)


def be_learner():
    wait_until(lambda: count("stop"))
    summary = {"stop_reason": "max_env_steps", "stop_time": time.time() - 1}
    summary["channels"] = {"experience": {"lost": 0}}
    (RUN_DIR / "summary.json").write_text(json.dumps(summary))
    (RUN_DIR / "checkpoints" / "best").mkdir(parents=True)


def misbehave():
    how, _, code = BEHAVIOUR.partition(" ")
    if how == "deaf":  # never ends by itself
        while True:
            signal.sigwait({signal.SIGTERM})
    if how == "killed":
        wait_until(lambda: count("up") == NUM_TASKS)
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "early":  # dies of SIGTERM, as during its imports
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        signal.pause()
    if how == "orphan":  # leaves a child behind
        child = [sys.executable, "-c", "import time; time.sleep(60)"]
        note("children", str(subprocess.Popen(child).pid))
        if code:
            wait_until(lambda: count("up") == NUM_TASKS)
            sys.exit(int(code))
    if how == "exit":
        wait_until(lambda: count("up") == NUM_TASKS)
        print("\n".join(f"{NAME} line {n}" for n in range(100)), flush=True)
        note("done")
        sys.exit(int(code))
    if how == "follow":  # ends when the run does, not in order
        wait_until(lambda: count("stop"))
        note("done")
        sys.exit(int(code))
    if how == "fall":  # fails in the farewell, before its part is done
        wait_until(lambda: count("stop"))
        note("fallen", str(os.getpid()))
        sys.exit(int(code))
    if how == "linger":  # is done, and still there
        wait_until(lambda: count("stop"))
        note("done")
        signal.sigwait({signal.SIGTERM})
        sys.exit(0)


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
if "watch_stdin" in FLAGS and BEHAVIOUR != "deaf":
    threading.Thread(target=watch_stdin, daemon=True).start()
if NAME == "ps 0" and "policies" in PLAN:
    (RUN_DIR / "metrics").mkdir()
    say(failure_policies=PLAN["policies"])
note("up", str(os.getpid()))
note(f"life-{LIFE}", str(os.getpid()))
misbehave()
if NAME == "ps 0":
    be_ps_0()
elif NAME == "learner 0" and BEHAVIOUR != "idle":
    be_learner()
else:
    wait_until(lambda: count("stop"))
note("done")
