"""The launcher's command line → one description of a run."""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from distrl.cluster.spec import JOBS
from distrl.core.errors import ConfigError
from distrl.lifecycle.failure_policy import FailurePolicies
from launch.bootstrap import ROOT
from launch.description import RunDescription

T = TypeVar("T", int, float)
DEFAULT_CONFIG = "configs/apex/cartpole.gin"
BINDINGS = {
    "seed": "Run.seed",
    "max_env_steps": "StopConditions.max_env_steps",
    "max_learner_steps": "StopConditions.max_learner_steps",
    "max_seconds": "StopConditions.max_seconds",
    "target_return": "StopConditions.target_return",
}


class OneLineParser(argparse.ArgumentParser):
    """Refuses bad input with one line, without the usage, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def parse(arguments: Sequence[str] | None) -> tuple[RunDescription, argparse.Namespace]:
    """The run, and the flags that are about the launcher itself.

    Ends the program with one line and exit code 2 for anything that cannot be run.
    """
    parser = _parser()
    flags = parser.parse_args(arguments)
    if flags.num_learners > 1:
        parser.error(
            "--num_learners: more than one learner is not supported yet, "
            f"expected 1, got {flags.num_learners}"
        )
    if flags.resume:
        config, run_dir = _resumed(flags, parser)
    else:
        config, run_dir = _new(flags, parser)
    try:
        policies = _on_failure(flags.on_failure)
    except ConfigError as error:
        parser.error(f"--on_failure: {error}")
    return _description(flags, config, run_dir, policies), flags


def _new(
    flags: argparse.Namespace, parser: argparse.ArgumentParser
) -> tuple[Path, Path]:
    """The configuration and the folder of a new run."""
    name = flags.config or DEFAULT_CONFIG
    config = _find(name)
    if config is None:
        parser.error(f"CONFIG: expected an existing file, got {name!r}")
    run_dir = Path(flags.run_dir or _default_run_dir(config.stem)).absolute()
    if run_dir.exists():
        parser.error(
            f"--run_dir: expected a folder that does not exist yet, got '{run_dir}'; "
            "--resume goes on with the run in it"
        )
    return config, run_dir


def _resumed(
    flags: argparse.Namespace, parser: argparse.ArgumentParser
) -> tuple[Path, Path]:
    """The folder of a run, and its configuration unless another is given."""
    if not flags.run_dir:
        parser.error("--resume: expected the --run_dir of the run to go on with")
    run_dir = Path(flags.run_dir).absolute()
    own = run_dir / "config.gin"
    if not own.is_file():
        parser.error(f"--resume: there is no run in '{run_dir}'")
    if flags.config is None:
        return own, run_dir
    config = _find(flags.config)
    if config is None:
        parser.error(f"CONFIG: expected an existing file, got {flags.config!r}")
    return config, run_dir


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="launch/train",
        description="Trains on a local cluster and evaluates what came out.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("config", nargs="?", metavar="CONFIG", help="gin file")
    for job, default in (("ps", 1), ("memories", 1), ("learners", 1), ("actors", 2)):
        add(f"--num_{job}", type=_positive, default=default, metavar="N")
    add("--run_dir", help="where results go; default runs/<config>-<time>, here")
    add("--resume", action="store_true", help="go on with the run in run_dir")
    add("--seed", type=_count, metavar="N", help="root of all random streams")
    add("--max_env_steps", type=_positive, metavar="N", help="stop after so many")
    add("--max_learner_steps", type=_positive, metavar="N", help="stop after so many")
    add("--max_seconds", type=_seconds, metavar="S", help="stop after so many")
    add("--target_return", type=_finite, metavar="R", help="stop at this greedy return")
    add(
        "--on_failure",
        action="append",
        default=[],
        metavar="JOB=POLICY",
        help="fail, ignore or restart(n per hour); repeatable",
    )
    add("--gin_binding", action="append", default=[], help="NAME = VALUE; repeatable")
    add("--print_only", action="store_true", help="print the tasks' command lines")
    add("--no_final_evaluation", action="store_true", help="leave the last part out")
    return parser


def _on_failure(texts: Sequence[str]) -> dict[str, str]:
    """Policies by job, of texts JOB=POLICY. Raises ConfigError."""
    policies = {}
    for text in texts:
        job, equals, policy = text.partition("=")
        if job not in JOBS or not equals:
            jobs = ", ".join(JOBS)
            raise ConfigError(f"expected JOB=POLICY, JOB one of {jobs}; got {text!r}")
        policies[job] = policy
    FailurePolicies(**policies)
    return policies


def _description(
    flags: argparse.Namespace, config: Path, run_dir: Path, policies: dict[str, str]
) -> RunDescription:
    settings = {key: getattr(flags, flag) for flag, key in BINDINGS.items()}
    bindings = [f"{k} = {v}" for k, v in settings.items() if v is not None]
    bindings += [f"FailurePolicies.{job} = {p!r}" for job, p in policies.items()]
    return RunDescription(
        config,
        run_dir,
        num_ps=flags.num_ps,
        num_memories=flags.num_memories,
        num_learners=flags.num_learners,
        num_actors=flags.num_actors,
        gin_bindings=(*bindings, *flags.gin_binding),
        failures=FailurePolicies(**policies),
        resume=flags.resume,
    )


def _find(config: str) -> Path | None:
    """Relative to the current folder, or else to the repository."""
    found = (base / config for base in (Path.cwd(), ROOT) if (base / config).is_file())
    return next(found, None)


def _default_run_dir(stem: str) -> str:
    """A name of this second that is still free."""
    name = f"runs/{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(n for n in itertools.chain([name], numbered) if not Path(n).exists())


def _count(text: str) -> int:
    return _number(text, int, lambda n: n >= 0, "a whole number of at least 0")


def _positive(text: str) -> int:
    return _number(text, int, lambda n: n > 0, "a whole number of at least 1")


def _seconds(text: str) -> float:
    return _number(
        text, float, lambda n: 0 < n < math.inf, "a number of seconds above 0"
    )


def _finite(text: str) -> float:
    return _number(text, float, math.isfinite, "a finite number")


def _number(
    text: str, kind: Callable[[str], T], accepts: Callable[[T], bool], expected: str
) -> T:
    """Raises ArgumentTypeError unless `text` is a `kind` of number it `accepts`."""
    try:
        number = kind(text)
    except ValueError:
        accepted = False
    else:
        accepted = accepts(number)
    if not accepted:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return number
