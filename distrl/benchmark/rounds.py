"""What synchronous rounds cost: `python -m distrl.benchmark.rounds --secs=30`.

A run of a configuration of a synchronous agent, and, with --peer_python naming an
interpreter that has it, stable-baselines3's PPO with the same network, rollout and
epochs beside it (the default configuration only). One line each:

  env_steps_per_sec            of the time that the run was running
  cpu_secs_per_1000_env_steps  all processes, start-up excluded
  rounds_per_sec               whole rounds
  overhead_share               of the time of all rounds but the first, what the learner
                               published, planned, or waited for what is not collecting:
                               barrier and transport
  env_steps, secs, reached     where it ended; with --target_return, what it took

`secs` are of training: without start-up, and for the peer without its evaluations.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from distrl.benchmark import whole_runs
from distrl.benchmark.measuring import Record, end_on_sigterm, print_records, rounded

DEFAULT_CONFIG = "configs/ppo/cartpole.gin"
PEER = "stable_baselines_ppo"


def bindings(flags: argparse.Namespace) -> list[str]:
    """The lines of gin that make the run end where it should."""
    lines = [*flags.gin_binding, *whole_runs.ends(flags.secs, flags.target_return)]
    if flags.target_return is None:
        never = whole_runs.NEVER_SECS
        lines.append(f"Rounds.evaluation_period_secs = {never}")
    return lines


def our_run(flags: argparse.Namespace) -> Record:
    """The record of a run. Raises RuntimeError when it fails."""
    with tempfile.TemporaryDirectory(prefix="distrl-benchmark-") as folder:
        run_dir, lines = pathlib.Path(folder) / "run", bindings(flags)
        run = whole_runs.whole_run(
            flags.config, lines, flags.num_actors, run_dir, flags.seed
        )
        return record_of(run.summary)


def record_of(summary: Record) -> Record:
    """What a run's summary says about its rounds."""
    cpu = sum(cost["steady"] for cost in summary["cpu_secs"].values())
    secs, rounds = max(summary["running_secs"], 1e-9), summary["rounds"]
    return {
        "system": "distrl",
        "env_steps": summary["env_steps"],
        "secs": secs,
        "env_steps_per_sec": summary["env_steps"] / secs,
        "cpu_secs_per_1000_env_steps": 1000 * cpu / max(summary["env_steps"], 1),
        "reached": summary["stop_reason"],
        "rounds_per_sec": rounds["rounds"] / secs,
        "overhead_share": rounds["overhead_secs"] / max(rounds["secs"], 1e-9),
    }


def peer_run(flags: argparse.Namespace) -> Record:
    """The peer's record. Raises RuntimeError when it fails."""
    arguments = [f"--secs={flags.secs}", f"--seed={flags.seed}"]
    if flags.target_return is not None:
        arguments.append(f"--target_return={flags.target_return}")
    record, _ = whole_runs.peer_run(flags.peer_python, PEER, arguments, flags.secs)
    return {**record, "rounds_per_sec": None, "overhead_share": None}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=DEFAULT_CONFIG, help="gin file")
    parser.add_argument("--gin_binding", action="append", default=[])
    parser.add_argument("--num_actors", type=int, default=2)
    parser.add_argument("--secs", type=float, default=30.0, help="at most, default 30")
    parser.add_argument("--target_return", type=float, help="ends a run when reached")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peer_python", help="an interpreter with stable-baselines3")
    flags = parser.parse_args(arguments)
    end_on_sigterm()
    try:
        records = [our_run(flags)]
        if flags.peer_python:
            records.append(peer_run(flags))
        print_records([rounded(record) for record in records])
    except (RuntimeError, OSError) as error:
        sys.exit(f"rounds: {error}")


if __name__ == "__main__":
    main()
