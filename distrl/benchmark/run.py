"""What a whole run costs: `python -m distrl.benchmark.run --config=FILE --secs=60`.

A run of the configuration on this machine, for --secs behind its start-up, at its own
samples_per_insert, without evaluations, in a folder that is removed afterwards. Then
the parts of the same work without run, network and queue: `acting`, with the parameters
that the run ended with, `replaying` and `learning`. First one at a time on the idle
machine ("alone"), then as many processes at once as the run had ("together"): what
shares cores and caches pays more CPU for the same work, and the difference between the
two is the machine's, not distrl's. A shared machine may change its speed within a
minute: --rounds repeats all of it, and the round of median efficiency is printed.

  env_steps_per_sec, learner_steps_per_sec  of the time that the run was running
  cpu_secs_per_1000_env_steps  by job and in all, start-up excluded, farewell included
  start_up_cpu_secs            by job: imports, graphs, waiting for the others
  wait_fractions               by job, mean over the run: the share of time in waiting
  rows_lost                    by channel
  alone_cpu_secs               by job: CPU that the same work takes in the parts alone
  together_cpu_secs            by job: the same, of the parts together
  efficiency                   alone_cpu_secs in all ÷ CPU of the whole run, ps included
  efficiency_together          together_cpu_secs in all ÷ the same
  rounds                       the two efficiencies of each round
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

from distrl.benchmark import configured, whole_runs
from distrl.benchmark.measuring import (
    Record,
    check_repeats,
    end_on_sigterm,
    json_lines,
    output_of,
    rounded,
    table,
)
from distrl.benchmark.whole_runs import JOBS, running_lines, wait_fractions


def bindings(flags: argparse.Namespace) -> list[str]:
    """The lines of gin that make the run end where it should."""
    never = f"Acting.evaluation_period_secs = {whole_runs.NEVER_SECS}"
    return [*flags.gin_binding, *whole_runs.ends(flags.secs), never]


def part_programs(
    flags: argparse.Namespace, run_dir: pathlib.Path, summary: Record
) -> dict[str, list[str]]:
    """The arguments of the program of each part, by its name."""
    shared = [f"--config={flags.config}", f"--secs={flags.part_secs}"]
    shared += [f"--repeats={flags.repeats}"]
    shared += [f"--gin_binding={binding}" for binding in flags.gin_binding]
    checkpoint = newest_checkpoint(run_dir)
    own = {
        "acting": [] if checkpoint is None else [f"--checkpoint={checkpoint}"],
        "replaying": [f"--rows={max(1, summary['rows']['inserted'])}"],
        "learning": [],
    }
    return {name: [f"distrl.benchmark.{name}", *shared, *own[name]] for name in own}


def parts_alone(programs: Mapping[str, Sequence[str]]) -> dict[str, Record]:
    """What each part measures on the idle machine, by its name. Raises RuntimeError."""
    return {name: json_lines(output_of(run))[0] for name, run in programs.items()}


def parts_together(
    programs: Mapping[str, Sequence[str]], num_actors: int
) -> dict[str, Record]:
    """What the parts measure when all run at once, acting `num_actors` times, by name.

    Of the actors, the first one counts. Raises RuntimeError.
    """
    extra = [programs["acting"]] * (num_actors - 1)
    with futures.ThreadPoolExecutor(len(programs) + len(extra)) as pool:
        outputs = list(pool.map(output_of, [*programs.values(), *extra]))
    return {
        name: json_lines(text)[0]
        for name, text in zip(programs, outputs, strict=False)  # ahead of the extra
    }


def newest_checkpoint(run_dir: pathlib.Path) -> pathlib.Path | None:
    from distrl.checkpoints.checkpoint_store import CheckpointStore

    return CheckpointStore(run_dir / "checkpoints").newest()


def cpu_secs_of_parts(
    summary: Record, measured: Mapping[str, Record]
) -> dict[str, float]:
    """By job and in all, the CPU seconds of the run's work at the parts' costs."""
    rows, replaying = summary["rows"], measured["replaying"]
    memory_us = (
        rows["inserted"] * replaying["insert_cpu_us"]
        + rows["sampled"] * replaying["sample_cpu_us"]
        + rows["trained"] * replaying["update_cpu_us"]
    )
    costs = {
        "actor": summary["env_steps"] * measured["acting"]["cpu_ms"] / 1e6,
        "memory": memory_us / 1e6,
        "learner": summary["learner_steps"] * measured["learning"]["cpu_ms"] / 1e3,
    }
    return {**costs, "all": sum(costs.values())}


def result(
    flags: argparse.Namespace,
    summary: Record,
    waits: Mapping[str, float],
    alone: Mapping[str, Record],
    together: Mapping[str, Record],
) -> Record:
    """The record that is printed."""
    cpu = {job: cost["steady"] for job, cost in summary["cpu_secs"].items()}
    cpu["all"] = sum(cpu.values())
    alone_cpu = cpu_secs_of_parts(summary, alone)
    together_cpu = cpu_secs_of_parts(summary, together)
    thousands = max(summary["env_steps"], 1) / 1000
    copied = ("stop_reason", "running_secs", "env_steps", "learner_steps")
    rates = ("env_steps_per_sec", "learner_steps_per_sec", "samples_per_insert")
    return {
        "config": str(flags.config),
        "gin_bindings": flags.gin_binding,
        "num_actors": flags.num_actors,
        **{key: summary[key] for key in (*copied, *rates)},
        "cpu_secs_per_1000_env_steps": {j: c / thousands for j, c in cpu.items()},
        "cpu_secs": cpu,
        "start_up_cpu_secs": {j: c["start_up"] for j, c in summary["cpu_secs"].items()},
        "wait_fractions": dict(waits),
        "rows_lost": {n: rows["lost"] for n, rows in summary["channels"].items()},
        "alone_cpu_secs": alone_cpu,
        "together_cpu_secs": together_cpu,
        "efficiency": alone_cpu["all"] / max(cpu["all"], 1e-9),
        "efficiency_together": together_cpu["all"] / max(cpu["all"], 1e-9),
        "parts": {"alone": dict(alone), "together": dict(together)},
    }


def print_result(record: Record) -> None:
    """Two tables for people, then one JSON line."""
    short = rounded(record)
    single = [k for k, v in short.items() if not isinstance(v, list | tuple | Mapping)]
    print(table([{"": key, "value": short[key]} for key in single]), end="\n\n")
    columns = (
        *("cpu_secs_per_1000_env_steps", "cpu_secs"),
        *("alone_cpu_secs", "together_cpu_secs"),
        *("start_up_cpu_secs", "wait_fractions"),
    )
    rows: list[dict[str, Any]] = [
        {"job": job, **{name: short[name].get(job) for name in columns}}
        for job in (*JOBS, "all")
    ]
    print(table(rows), end="\n\n")
    lost = ", ".join(f"{name} {rows}" for name, rows in short["rows_lost"].items())
    print(f"rows lost: {lost}")
    for alone, together in record.get("rounds", ()):
        print(f"a round: efficiency {alone:.2f}, together {together:.2f}")
    print(json.dumps(short))


def measure_round(flags: argparse.Namespace) -> Record:
    """The record of a run and its parts. Raises RuntimeError, ValueError."""
    with tempfile.TemporaryDirectory(prefix="distrl-benchmark-") as folder:
        run_dir = pathlib.Path(folder) / "run"
        summary, _ = whole_runs.whole_run(
            flags.config, bindings(flags), flags.num_actors, run_dir
        )
        programs = part_programs(flags, run_dir, summary)
        alone = parts_alone(programs)
        together = parts_together(programs, flags.num_actors)
        waits = wait_fractions(running_lines(run_dir))
        return result(flags, summary, waits, alone, together)


def measure(flags: argparse.Namespace) -> Record:
    """The round of median efficiency. Raises RuntimeError, ValueError."""
    check_repeats(flags.secs, flags.rounds)
    check_repeats(flags.part_secs, flags.repeats)
    rounds = [measure_round(flags) for _ in range(flags.rounds)]
    rounds.sort(key=lambda record: record["efficiency"])
    both = [(r["efficiency"], r["efficiency_together"]) for r in rounds]
    return {**rounds[len(rounds) // 2], "rounds": both}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = configured.parser(__doc__, secs=60.0)
    parser.add_argument("--num_actors", type=int, default=2, help="default 2")
    parser.add_argument(
        "--part_secs", type=float, default=10.0, help="of each part alone, default 10"
    )
    parser.add_argument("--rounds", type=int, default=1, help="default 1")
    flags = parser.parse_args(arguments)
    end_on_sigterm()
    try:
        print_result(measure(flags))
    except (RuntimeError, ValueError) as error:
        print(f"run: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, RuntimeError) else configured.BAD_INPUT)


if __name__ == "__main__":
    main()
