"""Runs a whole cluster on this machine: starts, watches, ends and evaluates it."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from launch.description import TRAIN, RunDescription, cluster_tasks
from launch.evaluation import EVALUATE, EvaluationFailed, EvaluationStopped, evaluate
from launch.flags import parse
from launch.processes import Events, Processes, signals_as_events
from launch.restarts import Restarts
from launch.status import StatusFeed
from launch.summary import complete_summary, failure_report, report
from launch.watch import Limits, Outcome, Watch

LIMITS = Limits()


class ProgressView(Protocol):
    """Shows how far a run is."""

    def update(self, status: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def open_console(description: str) -> ProgressView:
    """Progress on the terminal."""
    from distrl.metrics.console import Progress  # rich, for nothing before the start

    return Progress(description)


def main(
    arguments: Sequence[str] | None = None,
    train: tuple[str, ...] = TRAIN,
    evaluation: tuple[str, ...] = EVALUATE,
    limits: Limits = LIMITS,
    open_progress: Callable[[str], ProgressView] = open_console,
) -> int:
    """The exit code: 0 in order, 1 a failure, 2 bad input, 130 ended at once.

    Raises SystemExit for bad input.
    """
    run, flags = parse(arguments)
    if flags.print_only:
        for task in cluster_tasks(run, train, watched=False):
            print(task.shell_line())
        return 0
    events: Events = Events()
    with signals_as_events(events):
        try:
            (run.run_dir / "logs").mkdir(parents=True, exist_ok=run.resume)
            run = with_own_config(run)
        except OSError as error:
            say(f"launch/train: --run_dir: {error}")
            return 2
        print(f"run directory: {run.run_dir}", flush=True)
        outcome = train_to_end(run, train, events, limits, open_progress)
        if outcome.exit_code:
            return end_after_failure(run.run_dir, outcome)

        def evaluate_once() -> dict[str, Any]:
            seed, max_secs = flags.seed or 0, limits.evaluation_secs
            return evaluate(run.run_dir, seed, events, max_secs, evaluation)

        wanted = not (flags.no_final_evaluation or outcome.stopped)
        return end_in_order(run.run_dir, outcome, evaluate_once if wanted else None)


def with_own_config(run: RunDescription) -> RunDescription:
    """A run that goes on under the configuration in its folder reads a copy of it, for
    its learner writes that file anew. Raises OSError."""
    if run.config.parent != run.run_dir:
        return run
    copy = run.run_dir / "resumed.gin"
    shutil.copyfile(run.config, copy)
    return dataclasses.replace(run, config=copy)


def train_to_end(
    run: RunDescription,
    program: tuple[str, ...],
    events: Events,
    limits: Limits,
    open_progress: Callable[[str], ProgressView],
) -> Outcome:
    """Starts the tasks and returns when none is left; shows progress meanwhile."""
    tasks = cluster_tasks(run, program)
    feed = StatusFeed(run.run_dir / "metrics" / "ps-0.jsonl")
    progress = open_progress(f"{run.config.parent.name} {run.config.stem}")

    def look() -> dict[str, Any] | None:
        if (status := feed.newest()) is not None:
            progress.update(status)
        return status

    try:
        with Processes(tasks, run.run_dir / "logs", events) as processes:
            processes.start()
            restarts = Restarts(run.failures)
            watch = Watch(tasks, processes, events, limits, say, look, restarts)
            return watch.run()
    finally:
        progress.close()


def end_in_order(
    run_dir: Path, outcome: Outcome, evaluate_once: Callable[[], dict] | None
) -> int:
    """Completes the summary and reports. The final evaluation may be left out."""
    additions: dict[str, Any] = {"final_evaluation": None}
    failed = False
    try:
        if evaluate_once is None:
            reason = "the run was stopped" if outcome.stopped else "not asked for"
            say(f"no final evaluation: {reason}")
        else:
            say("final evaluation of the best and the newest checkpoint")
            additions = evaluate_once()
    except EvaluationFailed as error:
        failed = not isinstance(error, EvaluationStopped)
        say(f"no final evaluation: {error}")
    path = run_dir / "summary.json"
    try:
        summary = complete_summary(path, outcome.exits, additions)
    except (OSError, ValueError) as error:
        say(f"all tasks ended with exit code 0, but there is no summary: {error}")
        return 1
    print(report(summary, path), flush=True)
    return int(failed)


def end_after_failure(run_dir: Path, outcome: Outcome) -> int:
    """Adds the exit codes to a summary that is there, and tells what went wrong."""
    path, logs = run_dir / "summary.json", run_dir / "logs"
    try:
        complete_summary(path, outcome.exits, {"final_evaluation": None})
    except FileNotFoundError:
        pass  # the run had not come that far
    except (OSError, ValueError) as error:
        say(f"the summary is not complete: {error}")
    if outcome.at_once:
        say("ended at once, not in order")
    elif outcome.cause is None:
        names = ", ".join(task.name for task in outcome.overdue)
        say(f"had to be ended from outside: {names}; see {logs}")
    else:
        say(failure_report(outcome.cause, logs))
    return outcome.exit_code


def say(line: str) -> None:
    """A line about the course of things; results go to standard output."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
