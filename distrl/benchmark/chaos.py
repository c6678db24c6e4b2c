"""Runs to which something is done: `python -m distrl.benchmark.chaos --repeats=3`.

Every cell is a run on this machine, one at a time: a fault befalls a task of a job of
an agent (configs/AGENT/cartpole.gin) at a random moment, which is drawn from --seed.

  kill   SIGKILL                            leave  SIGTERM, actors only
  stop   SIGSTOP, SIGCONT after --stop_secs join   one more actor, by hand
  delay  the same after 1 to 2 s, which nobody may take for a loss

A short run lasts --secs; with --learning it goes to the goal of its configuration and
must reach 475 in the final evaluation. Checked are exit codes, the reason of the stop,
the failures that were counted, the ledger against every row that was really sent and
received, and that no process, port, shared memory or temporary file is left. With
--policy=fail the run has to be gone within 30 s, with another exit code than 0 and the
cause in its last words.

A table is printed (agent and fault by job), and what failed, sentence by sentence.
--out gets a JSON line a cell; --skip_done leaves out those that it has as ok.

In place of the matrix:
  --resume        kill -9 of a whole run, which then goes on with `--resume`
  --side_by_side  two runs; a task of the one is killed, the other must not notice
  --soak=MINUTES  actors come and go; what grows in the other tasks?

Exit code 0 when all is well, 1 when something failed, 2 for bad input.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

from distrl.benchmark import chaos_cells, chaos_scenarios, chaos_soak, chaos_table
from distrl.benchmark.chaos_cells import Cell, Conditions
from distrl.benchmark.chaos_faults import ELASTIC, FAULTS, KILL, STOP
from distrl.benchmark.measuring import Record, end_on_sigterm
from distrl.lifecycle.settings import Timeouts

BAD_INPUT = 2

RunCell = Callable[[Cell, Conditions, pathlib.Path], Record]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    choices = (
        ("agents", chaos_cells.AGENTS, chaos_cells.AGENTS),
        ("faults", FAULTS, (KILL, STOP)),
        ("jobs", chaos_cells.JOBS, chaos_cells.JOBS),
    )
    for name, known, default in choices:
        words = f"of {','.join(known)}; default {','.join(default)}"
        add(f"--{name}", type=_some(known), default=default, metavar="A,B", help=words)
    add("--repeats", type=int, default=1, help="of each cell, default 1")
    add("--learning", action="store_true", help="to the goal of the configuration")
    policies = (chaos_cells.RESTART, chaos_cells.FAIL)
    add("--policy", choices=policies, default=policies[0], help="for all jobs")
    ours = Conditions()
    add("--secs", type=float, default=ours.secs, help="of a short run")
    add("--stop_secs", type=float, default=ours.stop_secs, help="of a stop")
    add("--heartbeat_secs", type=float, help="to a loss; default by scenario")
    add("--seed", type=int, default=0, help="of moments, tasks and runs")
    add("--gin_binding", action="append", default=[], help="NAME = VALUE; repeatable")
    add("--out", type=pathlib.Path, help="file of JSON lines")
    add("--skip_done", action="store_true", help="leave out what is ok in --out")
    add("--folder", type=pathlib.Path, help="for runs; all of them stay there")
    scenario = made.add_mutually_exclusive_group()
    scenario.add_argument("--resume", action="store_true", help="see above")
    scenario.add_argument("--side_by_side", action="store_true", help="see above")
    scenario.add_argument("--soak", type=float, metavar="MINUTES", help="see above")
    return made


def _some(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        words = tuple(text.split(","))
        if strangers := [word for word in words if word not in known]:
            expected = ", ".join(known)
            raise argparse.ArgumentTypeError(f"{strangers[0]!r} is none of {expected}")
        return words

    return parse


def cells_of(flags: argparse.Namespace) -> list[Cell]:
    """The whole matrix, a repeat after the other; faults of actors only for those."""
    mode = chaos_cells.LEARNING if flags.learning else chaos_cells.SHORT
    parts = (range(flags.repeats), flags.agents, flags.faults, flags.jobs)
    return [
        Cell(agent, fault, job, repeat, mode, flags.policy)
        for repeat, agent, fault, job in itertools.product(*parts)
        if job == "actor" or fault not in ELASTIC
    ]


def conditions_of(flags: argparse.Namespace) -> Conditions:
    """Raises ValueError."""
    if flags.repeats < 1:
        raise ValueError(f"expected repeats >= 1, got {flags.repeats}")
    if flags.skip_done and flags.out is None:
        raise ValueError("--skip_done needs the file of an earlier --out")
    heartbeat_secs = flags.heartbeat_secs
    if heartbeat_secs is None:
        # In a soak nobody is stopped, and a machine may stand still for some seconds.
        kind = Timeouts if flags.soak else Conditions
        heartbeat_secs = kind().heartbeat_secs
    return Conditions(
        flags.secs,
        heartbeat_secs,
        flags.stop_secs,
        flags.seed,
        tuple(flags.gin_binding),
    )


def run_matrix(
    flags: argparse.Namespace,
    conditions: Conditions,
    folder: pathlib.Path,
    run_cell: RunCell = chaos_cells.run_cell,
) -> list[Record]:
    """The records of all cells, those among them that were done before."""
    done = chaos_table.read(flags.out) if flags.skip_done else {}
    records = []
    for cell in cells_of(flags):
        record = done.get(cell)
        if record is None or not chaos_table.good(record):
            record = run_cell(cell, conditions, folder)
            chaos_table.append(flags.out, record)
            tell(cell.name, record)
            tidy(flags, record)
        records.append(record)
    return records


def tell(name: str, record: Record) -> None:
    """A line about a run that has ended, for who waits."""
    found = "ok" if chaos_table.good(record) else "; ".join(record["complaints"])
    print(f"{name}: {found}", file=sys.stderr, flush=True)


def tidy(flags: argparse.Namespace, record: Record) -> None:
    """Removes the folder of a run that was fine, unless folders were asked for."""
    if flags.folder is None and chaos_table.good(record):
        shutil.rmtree(record["run_dir"], ignore_errors=True)


@contextlib.contextmanager
def folder_of(flags: argparse.Namespace) -> Iterator[pathlib.Path]:
    """Where the runs are; removed when it is ours and no run is left in it."""
    if flags.folder is not None:
        yield flags.folder.absolute()
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="distrl-chaos-"))
    try:
        yield folder
    finally:
        if any(path.is_dir() for path in folder.iterdir()):
            print(f"what failed is in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)


def run_scenario(
    flags: argparse.Namespace, conditions: Conditions, folder: pathlib.Path
) -> list[Record]:
    """The records of the scenario that the flags ask for, one for each agent."""
    records = []
    for agent in flags.agents[:1] if flags.soak else flags.agents:
        for repeat in range(1 if flags.soak else flags.repeats):
            if flags.soak:
                record = chaos_soak.soak(
                    agent, conditions, flags.soak, folder, flags.out
                )
            else:
                name = "resume" if flags.resume else "side_by_side"
                run = getattr(chaos_scenarios, name)
                record = run(agent, repeat, conditions, folder, flags.learning)
                chaos_table.append(flags.out, record)
            tell(record["scenario"], record)
            tidy(flags, record)
            records.append(record)
    return records


def main(arguments: Sequence[str] | None = None) -> None:
    flags = parser().parse_args(arguments)
    end_on_sigterm()
    try:
        conditions = conditions_of(flags)
    except ValueError as error:
        print(f"chaos: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    with folder_of(flags) as folder:
        if flags.resume or flags.side_by_side or flags.soak:
            records = run_scenario(flags, conditions, folder)
        else:
            records = run_matrix(flags, conditions, folder)
            print(chaos_table.matrix(records), end="\n\n")
            print("\n".join(chaos_table.complaints(records)) or "all is well")
    sys.exit(0 if all(map(chaos_table.good, records)) else 1)


if __name__ == "__main__":
    main()
