"""One description of a run on this machine → the tasks that carry it out."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import shlex
import sys
from pathlib import Path

import portpicker

from distrl.lifecycle.failure_policy import FailurePolicies
from launch.bootstrap import ROOT

HOST = "127.0.0.1"
# Below the ports that Linux gives to outgoing connections: there, a task that knocks
# at a server which is not up yet could be given that very port, and take it.
PORTS = range(15000, 25000)
TRAIN = (sys.executable, "-m", "distrl.train")


@dataclasses.dataclass(frozen=True)
class RunDescription:
    """What to run: a configuration, how many tasks of each job, and where it writes."""

    config: Path
    run_dir: Path
    num_ps: int = 1
    num_memories: int = 1
    num_learners: int = 1
    num_actors: int = 2
    gin_bindings: tuple[str, ...] = ()
    failures: FailurePolicies = FailurePolicies()
    resume: bool = False


@dataclasses.dataclass(frozen=True)
class Task:
    """One process: its place in the run, its command, what its environment adds, and
    how often it has been started before."""

    job: str
    index: int
    argv: tuple[str, ...]
    environment: dict[str, str]
    restart: int = 0
    numbered: bool = False  # each start gets its --incarnation

    def again(self) -> Task:
        """Its next start."""
        return dataclasses.replace(self, restart=self.restart + 1)

    @property
    def command(self) -> tuple[str, ...]:
        """What to execute."""
        return (*self.argv, *[f"--restart={self.restart}"] * (self.restart > 0))

    @property
    def name(self) -> str:
        return f"{self.job} {self.index}"

    @property
    def log_name(self) -> str:
        return f"{self.job}-{self.index}.log"

    def shell_line(self) -> str:
        """The command as a line for a shell, with the environment it needs."""
        settings = [f"{k}={shlex.quote(v)}" for k, v in self.environment.items()]
        return " ".join([*settings, shlex.join(self.argv)])


def cluster_tasks(
    run: RunDescription, program: tuple[str, ...] = TRAIN, watched: bool = True
) -> list[Task]:
    """The tasks of a run, ps first, on ports that are free now.

    A `watched` task ends when its standard input does, that is, when its launcher is
    gone; a command for a user to start is not watched.
    """
    counts = {
        "ps": run.num_ps,
        "memory": run.num_memories,
        "learner": run.num_learners,
    }
    addresses = iter(_free_addresses(sum(counts.values())))
    hosts = {job: [*itertools.islice(addresses, n)] for job, n in counts.items()}
    shared = [f"--gin_file={run.config}"]
    shared += [f"--gin_binding={binding}" for binding in run.gin_bindings]
    shared += [f"--{job}_hosts={','.join(of_job)}" for job, of_job in hosts.items()]
    shared += [f"--num_actors={run.num_actors}", f"--run_dir={run.run_dir}"]
    shared += ["--resume"] * run.resume
    shared += ["--watch_stdin"] * watched
    return [
        Task(
            job,
            index,
            (*program, f"--job_name={job}", f"--task_index={index}", *shared),
            task_environment(sees_gpus=job == "learner"),
            numbered=True,
        )
        for job, count in {**counts, "actor": run.num_actors}.items()
        for index in range(count)
    ]


def task_environment(sees_gpus: bool) -> dict[str, str]:
    """The variables that a task's environment sets beyond the launcher's own.

    The code is this repository's, also where the current folder holds another copy:
    from Python 3.11 on, PYTHONSAFEPATH keeps `-m` from looking there first.
    """
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = dict.fromkeys([str(ROOT), *inherited, os.getcwd()])
    changes = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        "no_proxy": _without_proxy(os.environ.get("no_proxy", "")),
        "NO_PROXY": _without_proxy(os.environ.get("NO_PROXY", "")),
    }
    return changes if sees_gpus else {**changes, "CUDA_VISIBLE_DEVICES": "-1"}


def _without_proxy(hosts: str) -> str:
    """`hosts`, comma-separated, and this machine."""
    known = [host.strip() for host in hosts.split(",") if host.strip()]
    return ",".join(dict.fromkeys([*known, HOST, "localhost"]))


def _free_addresses(count: int) -> list[str]:
    """`count` different addresses that nobody listens on. Raises ValueError."""
    ports = random.sample(PORTS, len(PORTS))
    free = itertools.islice(filter(portpicker.is_port_free, ports), count)
    addresses = [f"{HOST}:{port}" for port in free]
    if len(addresses) < count:
        raise ValueError(f"{count} servers need a port each, {len(addresses)} are free")
    return addresses
