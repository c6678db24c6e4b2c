"""Who is where: the hosts of a run. No TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re

from distrl.core.errors import ConfigError

SERVING_JOBS = ("ps", "memory", "learner")  # those with a server of their own
ELASTIC_JOBS = ("actor", "evaluator")  # any number of them come and go
JOBS = (*SERVING_JOBS, *ELASTIC_JOBS)
_FILE_KEYS = (*SERVING_JOBS, "actor")
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]+)")


@dataclasses.dataclass(frozen=True)
class ClusterSpec:
    """The addresses (host:port) of the jobs that serve, and the number of actors.

    Actors need no address. Raises ConfigError when built from anything but distinct
    well-formed addresses with at least one ps, memory, learner and actor.
    """

    ps: tuple[str, ...]
    memory: tuple[str, ...]
    learner: tuple[str, ...]
    num_actors: int

    def __post_init__(self) -> None:
        seen: dict[tuple[str, int], str] = {}
        for job in SERVING_JOBS:
            hosts = getattr(self, job)
            if not hosts:
                raise ConfigError(f"{job} hosts: expected at least one host:port")
            for index, address in enumerate(hosts):
                host, port = split_address(address, f"{job} host {index}")
                other = seen.setdefault((host.lower(), port), f"{job}/{index}")
                if other != f"{job}/{index}":
                    raise ConfigError(
                        f"{job}/{index} and {other} have the same address "
                        f"{address!r}; every task needs its own host:port"
                    )
        if self.num_actors < 1:
            raise ConfigError(
                f"expected at least 1 configured actor, got {self.num_actors}"
            )

    def addresses(self, job: str) -> tuple[str, ...]:
        """The addresses of one serving job."""
        return getattr(self, job)

    def check_task(self, job: str, index: int) -> None:
        """Raises ConfigError unless the run has this task; any actor or evaluator may
        come."""
        if job not in JOBS:
            raise ConfigError(
                f"--job_name: expected one of {', '.join(JOBS)}, got {job!r}"
            )
        if index < 0:
            raise ConfigError(f"--task_index: expected 0 or more, got {index}")
        if job in SERVING_JOBS and index >= len(self.addresses(job)):
            raise ConfigError(
                f"--task_index: {index} is out of range, the run has "
                f"{len(self.addresses(job))} {job} host(s): {self.addresses(job)}"
            )

    def bypass_proxies(self) -> None:
        """Adds the hosts to no_proxy. Call it before TensorFlow is imported.

        Both spellings get what either had: programs differ in which one they read.
        """
        addresses = (*self.ps, *self.memory, *self.learner)
        names = ("no_proxy", "NO_PROXY")
        known = ",".join(os.environ.get(name, "") for name in names).split(",")
        hosts = [part.strip() for part in known if part.strip()]
        hosts += sorted(split_address(address)[0] for address in addresses)
        os.environ.update(dict.fromkeys(names, ",".join(dict.fromkeys(hosts))))


def split_address(address: str, what: str = "address") -> tuple[str, int]:
    """Host (without brackets) and port. Raises ConfigError naming the address."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ConfigError(f"{what}: expected host:port, got {address!r}")
    return match["host"].strip("[]"), int(match["port"])


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text.strip() else ()


def cluster_from_flags(
    ps_hosts: str,
    memory_hosts: str,
    learner_hosts: str,
    actor_hosts: str = "",
    num_actors: int | None = None,
) -> ClusterSpec:
    """A spec from comma-separated host lists.

    The actors are given by their number, or by a list of hosts that is only counted.
    """
    listed = _hosts(actor_hosts)
    if listed and num_actors is not None and num_actors != len(listed):
        raise ConfigError(
            f"--num_actors={num_actors} contradicts the {len(listed)} --actor_hosts"
        )
    if not listed and num_actors is None:
        raise ConfigError("expected --num_actors or --actor_hosts, got neither")
    number = len(listed) if num_actors is None else num_actors
    return ClusterSpec(
        _hosts(ps_hosts), _hosts(memory_hosts), _hosts(learner_hosts), number
    )


def cluster_from_file(path: str) -> ClusterSpec:
    """A spec from a JSON file: {"ps": ["a:1"], "memory": […], "learner": […],
    "actor": 8}, also inside {"cluster": …} as in TF_CONFIG. "actor" is a number or a
    list that is counted."""
    try:
        content = json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"--cluster: cannot read {path!r}: {error}") from error
    if isinstance(content, dict) and "cluster" in content:
        content = content["cluster"]
    if not isinstance(content, dict) or set(content) != set(_FILE_KEYS):
        got = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise ConfigError(
            f"--cluster {path!r}: expected the keys {_FILE_KEYS}, got {got}"
        )
    lists = {}
    for job in SERVING_JOBS:
        hosts = content[job]
        if not isinstance(hosts, list) or not all(isinstance(h, str) for h in hosts):
            raise ConfigError(
                f"--cluster {path!r}, {job}: expected a list of host:port, "
                f"got {hosts!r}"
            )
        lists[job] = tuple(hosts)
    actors = content["actor"]
    number = len(actors) if isinstance(actors, list) else actors
    if not isinstance(number, int) or isinstance(number, bool):
        raise ConfigError(
            f"--cluster {path!r}, actor: expected a number or a list, got {actors!r}"
        )
    return ClusterSpec(num_actors=number, **lists)
