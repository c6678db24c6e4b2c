"""A run of the launcher under the hands of somebody who does it harm."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psutil

import distrl
from distrl.benchmark import whole_runs
from distrl.benchmark.chaos_processes import (
    RunProcesses,
    shared_memory,
    task_name,
    temporary_files,
)
from distrl.benchmark.measuring import Record

LAUNCHER = "launch.local"
START_SECS = 240.0  # until the run is running; the machine may be busy
GONE_SECS = 5.0  # for the kernel, after the launcher has ended
_LOOK_SECS = 0.2  # between two looks at a file or a process
_CLOSE_SECS = 10.0  # for what was killed
_FAILED = re.compile(
    r"(ps|memory|learner|actor) (\d+) (failed with exit code|ended because of another)"
)


class Ending(NamedTuple):
    """How a run has ended, and what it has left."""

    exit_code: int | None  # the launcher's; None: it did not end by itself
    time: float  # unix: when the last process was gone, or the last look for it
    lines: tuple[tuple[float, str], ...]  # the launcher's, with their times
    summary: Record | None
    by_hand: Mapping[str, Sequence[int]]  # exit codes of actors started by hand
    left: tuple[str, ...]  # processes, ports and shared memory
    unfinished: tuple[str, ...] = ()  # temporary files

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def deaths(self) -> dict[str, float]:
        """Of each task that did not end in order, by job/index, the time of its last
        failure: what was started before it has died."""
        times: dict[str, float] = {}
        for when, line in self.lines:
            if match := _FAILED.match(line):
                times[f"{match[1]}/{match[2]}"] = when
        for task in (self.summary or {}).get("tasks", ()):
            if task["exit_code"]:
                times[f"{task['job']}/{task['task']}"] = self.time
        for name, codes in self.by_hand.items():
            if any(codes):
                times[name] = self.time
        return times


class LaunchedRun:
    """A run on this machine, started by the launcher with these arguments.

        with LaunchedRun(arguments, run_dir) as run:
            run.wait_until_running()
            deliveries = play(schedule, run)
            ending = run.finish(300.0)

    Nothing of it runs behind the block. What the launcher says is kept in
    `<run_dir>.log`, too.
    """

    def __init__(self, arguments: Sequence[str], run_dir: pathlib.Path):
        self.run_dir = run_dir
        self.started = time.time()
        self._shared_memory = shared_memory()
        self._lines: list[tuple[float, str]] = []
        self._by_hand: dict[str, list[subprocess.Popen]] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", LAUNCHER, *arguments, f"--run_dir={run_dir}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment(),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="read launcher")
        self._reader.start()
        self.processes = RunProcesses(self._process.pid, run_dir)

    def __enter__(self) -> LaunchedRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills what still runs; may be repeated."""
        self.processes.kill()
        self._process.wait(_CLOSE_SECS)
        for process in self._hands():
            process.wait(_CLOSE_SECS)
            if process.stdin is not None:
                process.stdin.close()
        self._reader.join(_CLOSE_SECS)
        self.processes.close()

    def _hands(self) -> list[subprocess.Popen]:
        return [process for of_one in self._by_hand.values() for process in of_one]

    def _read(self) -> None:
        path = self.run_dir.with_name(f"{self.run_dir.name}.log")
        with path.open("a") as log:
            for line in self._process.stdout or ():
                self._lines.append((time.time(), line.rstrip("\n")))
                log.write(line)
                log.flush()

    # What it is doing.

    def wait(self, seconds: float) -> bool:
        """Whether the launcher has ended, at most `seconds` from now."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def wait_until_running(self, seconds: float = START_SECS) -> None:
        """Raises RuntimeError when the run does not come so far."""
        deadline = time.monotonic() + seconds
        while self.status().get("phase") != "running":
            if self.wait(_LOOK_SECS) or time.monotonic() > deadline:
                last = "\n".join(line for _, line in self._lines[-20:])
                raise RuntimeError(f"{self.run_dir}: the run did not start:\n{last}")

    def status(self) -> dict[str, Any]:
        """The newest line of ps 0 in this life of the run; {} before there is one."""
        return whole_runs.newest_line(self.run_dir, "ps-0", self.started) or {}

    def tasks(self) -> Mapping[str, psutil.Process]:
        """The processes of its tasks, by job/index."""
        return self.processes.tasks()

    # What is done to it.

    def join(self, index: int) -> None:
        """Starts an actor by hand, with flags and environment of the launcher's.

        It ends when this program does. Raises RuntimeError when there is no actor to
        take them from.
        """
        actors = [p for name, p in self.tasks().items() if name.startswith("actor/")]
        if not actors:
            raise RuntimeError(f"{self.run_dir}: no actor runs whose flags another had")
        lives = self._by_hand.setdefault(f"actor/{index}", [])
        command = by_hand(actors[0].cmdline(), index, restart=len(lives))
        with (self.run_dir / "logs" / f"actor-{index}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=actors[0].environ(),
                start_new_session=True,
            )
        lives.append(process)
        self.processes.add(process.pid)

    def kill(self) -> float:
        """Kills all of it at once; the unix time when it was gone."""
        self.processes.kill()
        self._process.wait(_CLOSE_SECS)
        self.processes.wait_until_gone(GONE_SECS)
        return time.time()

    def processes_left(self) -> list[str]:
        """Processes and ports of a run that has ended, a moment later."""
        left = self.processes.wait_until_gone(GONE_SECS)
        found = [f"process {p.pid}: {_command(p)}" for p in left]
        ports = self.processes.listening()
        return found + [f"port {port} is listened on" for port in ports]

    def finish(self, seconds: float) -> Ending:
        """Waits for its end, at most so long; the rest is killed."""
        exit_code = self._process.returncode if self.wait(seconds) else None
        found = [] if exit_code is None else self.processes_left()
        gone = time.time()
        for process in self._hands():
            process.poll()
        if exit_code is not None:
            new = shared_memory() - self._shared_memory
            found += [f"/dev/shm/{name}" for name in sorted(new)]
        self.close()
        path = self.run_dir / "summary.json"
        return Ending(
            exit_code,
            gone,
            tuple(self._lines),
            json.loads(path.read_text()) if path.exists() else None,
            {k: [p.wait() for p in lives] for k, lives in self._by_hand.items()},
            tuple(found),
            tuple(map(str, temporary_files(self.run_dir))),
        )


def by_hand(arguments: Sequence[str], index: int, restart: int) -> list[str]:
    """The command of another actor, of that of a task of the launcher. Raises
    ValueError for a command of something else."""
    if task_name(arguments) is None:
        raise ValueError(f"expected the command of a task, got {list(arguments)}")
    own = ("--task_index=", "--restart=", "--incarnation=")  # that of its start
    shared = [word for word in arguments if not word.startswith(own)]
    again = [f"--restart={restart}"] * (restart > 0)
    return [*shared, f"--task_index={index}", *again]


def _environment() -> dict[str, str]:
    root = pathlib.Path(distrl.__file__).parents[1]
    paths = filter(None, [str(root), os.environ.get("PYTHONPATH")])
    own = {"PYTHONPATH": os.pathsep.join(paths)}
    return {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **own}


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.Error:
        return "ended meanwhile"
