"""A launcher whose tasks are small fakes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from launch.bootstrap import ROOT
from launch.local import main
from launch.watch import Limits

HERE = Path(__file__).parent
QUICK = Limits(failure_grace_secs=1.0, shutdown_secs=1.0, kill_secs=0.2, tick_secs=0.05)


class RecordedProgress:
    """Keeps what was shown."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []
        self.closed = False

    def update(self, status: dict[str, Any]) -> None:
        self.shown.append(status)

    def close(self) -> None:
        self.closed = True


@dataclasses.dataclass
class Launch:
    """One launch in this process, and what it left."""

    run_dir: Path
    config: Path
    progress: RecordedProgress = dataclasses.field(default_factory=RecordedProgress)

    def run(
        self,
        plan: dict[str, Any],
        *flags: str,
        evaluation: str = "works",
        limits: Limits = QUICK,
    ) -> int:
        return main(
            [str(self.config), f"--run_dir={self.run_dir}", *flags],
            fake_train(plan),
            fake_evaluate(evaluation),
            limits,
            lambda description: self.progress,
        )

    def summary(self) -> dict[str, Any]:
        return json.loads((self.run_dir / "summary.json").read_text())

    def wait_for(self, kind: str, count: int) -> None:
        """Until that many tasks have noted it."""
        end = time.monotonic() + 20
        while len(list((self.run_dir / kind).glob("*"))) < count:
            assert time.monotonic() < end, f"no {count} tasks {kind}"
            time.sleep(0.01)

    def pids(self, kind: str = "up") -> list[int]:
        files = (self.run_dir / kind).glob("*")
        return [int(word) for file in files for word in file.read_text().split()]


def fake_train(plan: dict[str, Any]) -> tuple[str, ...]:
    return (sys.executable, "-ISs", str(HERE / "fake_task.py"), json.dumps(plan))


def fake_evaluate(how: str) -> tuple[str, ...]:
    return (sys.executable, "-ISs", str(HERE / "fake_evaluate.py"), how)


@pytest.fixture
def launch(tmp_path: Path):
    """A Launch; afterwards none of its tasks may be left."""
    config = tmp_path / "fake.gin"
    config.write_text("")
    launch = Launch(tmp_path / "run", config)
    yield launch
    assert launch.pids(), "no task has started"
    assert not alive(launch.pids() + launch.pids("children"))


def alive(pids: list[int]) -> list[int]:
    """Those that run. A zombie, which its parent has yet to notice, does not."""
    living = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                living.append(pid)
    return living


class Launcher:
    """A launch in a process of its own."""

    def __init__(
        self, launch: Launch, plan: dict[str, Any], limits: Limits, *flags: str
    ):
        program = (
            "import sys; from launch.local import main, Limits;"
            f"sys.exit(main(sys.argv[1:], {fake_train(plan)!r}, "
            f"{fake_evaluate('works')!r}, {limits!r}))"
        )
        self._launch = launch
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                program,
                str(launch.config),
                f"--run_dir={launch.run_dir}",
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def wait_for_tasks(self, kind: str = "up", count: int = 5) -> None:
        """Until that many tasks are up, or whatever a fake task has noted."""
        self._launch.wait_for(kind, count)

    def end(self) -> tuple[int, str, str]:
        """Exit code, standard output and error, once it has ended."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture
def start_launcher(launch: Launch):
    """Starts a Launcher of `launch`; the launcher is gone afterwards."""
    started: list[Launcher] = []

    def start(plan: dict[str, Any], limits: Limits = QUICK, *flags: str) -> Launcher:
        started.append(Launcher(launch, plan, limits, *flags))
        return started[-1]

    yield start
    for launcher in started:
        launcher.process.kill()
        launcher.process.communicate()
