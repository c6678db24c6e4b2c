"""The flags of the programs that measure a configuration's parts, and reading it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from distrl.benchmark.measuring import Record, check_repeats, print_records
from distrl.core.errors import ConfigError, DistrlError

if TYPE_CHECKING:
    from distrl.agents.apex_agent import ApexAgent

DEFAULT_CONFIG = "configs/apex/cartpole.gin"
BAD_INPUT = 2


def parser(description: str | None, secs: float) -> argparse.ArgumentParser:
    """A parser with the flags that all these programs have."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--config", default=DEFAULT_CONFIG, help="gin file")
    made.add_argument(
        "--gin_binding", action="append", default=[], help="NAME = VALUE; repeatable"
    )
    made.add_argument(
        "--secs", type=float, default=secs, help=f"of measuring, default {secs:g}"
    )
    made.add_argument(
        "--repeats", type=int, default=5, help="share --secs; medians are printed"
    )
    return made


def read_agent(flags: argparse.Namespace) -> ApexAgent:
    """The agent of the flags' configuration. Raises ConfigError."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from distrl import configurables  # imports TensorFlow: seconds
    from distrl.agents.apex_agent import ApexAgent

    agent = configurables.read_experiment(flags.config, flags.gin_binding).agent
    if not isinstance(agent, ApexAgent):
        raise ConfigError(
            f"{flags.config}: expected an ApexAgent, got {type(agent).__name__}"
        )
    return agent


def print_measured(
    name: str,
    flags: argparse.Namespace,
    measure: Callable[[argparse.Namespace], Sequence[Record]],
) -> None:
    """Prints what `measure(flags)` returns; bad input is one line and exit code 2."""
    try:
        check_repeats(flags.secs, flags.repeats)
        print_records(measure(flags))
    except (DistrlError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
