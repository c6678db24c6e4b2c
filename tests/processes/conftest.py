"""Real processes of the real programs; whatever a test starts is gone after it."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import portpicker
import psutil
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "apex" / "cartpole.gin"
SMALL = (
    "ApexAgent.num_envs = 8",
    "Acting.evaluation_episodes = 2",
    "Replay.min_size_to_sample = 500",
    "Replay.batch_size = 32",
    "StopConditions.target_return = None",
)


class Workplace:
    """Starts programs in a folder of its own and knows what they leave."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.run_dir = folder, folder / "run"
        self.processes: list[subprocess.Popen] = []
        self._shared_memory = _shared_memory()

    def start(self, *arguments: str, log: str = "", **kwargs) -> subprocess.Popen:
        """Starts Python with these arguments; what it prints goes to `log`."""
        output = (self.folder / log).open("ab") if log else subprocess.DEVNULL
        environment = os.environ | {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "CUDA_VISIBLE_DEVICES": "-1",
        }
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=self.folder,
            start_new_session=True,
            **kwargs,
        )
        self.processes.append(process)
        return process

    def text(self, log: str) -> str:
        return (self.folder / log).read_text(errors="replace")

    def launch(self, *flags: str, config=CONFIG, bindings=SMALL) -> subprocess.Popen:
        """The launcher; its output is in launcher.log."""
        return self.start(
            "-m",
            "launch.local",
            str(config),
            f"--run_dir={self.run_dir}",
            *(f"--gin_binding={binding}" for binding in bindings),
            *flags,
            log="launcher.log",
        )

    def summary(self) -> dict:
        return json.loads((self.run_dir / "summary.json").read_text())

    def status(self) -> dict:
        """The newest status line of ps 0; {} before there is one."""
        path = self.run_dir / "metrics" / "ps-0.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return json.loads(lines[-1]) if lines else {}

    def wait_until(self, condition, what: str, seconds: float = 60.0) -> None:
        """Looks at files that other processes write, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"after {seconds} s still not: {what}")
            time.sleep(0.1)  # files cannot be waited for

    def tasks_alive(self) -> list[int]:
        """Processes that mention this run's directory."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            if f"--run_dir={self.run_dir}" in line:
                found.append(process.pid)
        return found

    def check_nothing_left(self) -> None:
        assert self.tasks_alive() == []
        assert _shared_memory() <= self._shared_memory

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        for pid in self.tasks_alive():
            os.kill(pid, signal.SIGKILL)


def _shared_memory() -> set[str]:
    folder = pathlib.Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


class ByHand:
    """The tasks of one run, started one by one."""

    def __init__(self, place: Workplace, num_actors: int = 2, bindings=SMALL):
        self.place = place
        ports = [portpicker.pick_unused_port() for _ in range(3)]
        names = ("ps", "memory", "learner")
        self.hosts = {
            name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)
        }
        self.flags = [
            f"--gin_file={CONFIG}",
            f"--num_actors={num_actors}",
            f"--run_dir={place.run_dir}",
            *(f"--{name}_hosts={host}" for name, host in self.hosts.items()),
            *(f"--gin_binding={binding}" for binding in bindings),
        ]

    def start(self, job: str, index: int = 0, *more: str) -> subprocess.Popen:
        return self.place.start(
            "-m",
            "distrl.train",
            f"--job_name={job}",
            f"--task_index={index}",
            *self.flags,
            *more,
            log=f"{job}-{index}.log",
        )


@pytest.fixture
def place(tmp_path):
    workplace = Workplace(tmp_path)
    yield workplace
    workplace.close()
