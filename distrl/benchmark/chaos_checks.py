"""What must hold of a run to which something was done; each check gives sentences.

A sentence begins with what failed, such as "ledger: ", for the table.
"""

from __future__ import annotations

import pathlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from distrl.benchmark.chaos_faults import KILL, STOP, Delivery
from distrl.benchmark.chaos_run import Ending
from distrl.benchmark.measuring import Record
from distrl.benchmark.row_ledger import check_rows, read_traces

GONE_SECS = 30.0  # after a failure that the run must not survive
LEARNED_RETURN = 475.0
_LAST_LINES = 80  # of the launcher; it shows 60 of a log
_GOAL = re.compile(r"(max_env_steps|max_learner_steps|max_seconds|target_return)=")
_SHOWN = 5  # sentences of one kind


def failing(delivery: Delivery, heartbeat_secs: float) -> bool:
    """Whether ps 0 counts this as a failure: nobody gives up a ps 0 that is silent,
    as long as it may be started again."""
    fault = delivery.fault
    lost = fault.kind == STOP and fault.secs > heartbeat_secs and fault.job != "ps"
    return not delivery.note and (fault.kind == KILL or lost)


def check_survived(
    ending: Ending, deliveries: Sequence[Delivery], heartbeat_secs: float
) -> Iterator[str]:
    """The run went on, reached its goal, and counted what was done to it."""
    yield from check_deliveries(deliveries)
    yield from check_left(ending)
    yield from (f"left behind: file {path}" for path in ending.unfinished)
    if ending.exit_code != 0:
        yield f"exit code: {_exit(ending)}{_last_line(ending)}"
        return
    if ending.summary is None:
        yield "summary: there is none"
        return
    yield from check_tasks(ending)
    reason = str(ending.summary["stop_reason"])
    if not _GOAL.match(reason):
        yield f"stop reason: {reason!r} is not the goal's"
    failed = Counter(d.fault.job for d in deliveries if failing(d, heartbeat_secs))
    yield from check_failures(ending.summary, failed)


def check_deliveries(deliveries: Sequence[Delivery]) -> Iterator[str]:
    """Every fault has happened."""
    for delivery in deliveries:
        if delivery.note:
            fault = delivery.fault
            what = f"{fault.kind} {fault.task} after {fault.after_secs:.1f} s"
            yield f"fault: {what}: {delivery.note}"


def check_tasks(ending: Ending) -> Iterator[str]:
    """Every task, in its last life, has ended in order."""
    for task in (ending.summary or {}).get("tasks", ()):
        if task["exit_code"]:
            name = f"{task['job']} {task['task']}"
            yield f"exit code: {name} ended with {task['exit_code']}"
    for name, codes in ending.by_hand.items():
        for code in codes:
            if code != 0:
                yield f"exit code: {name}, started by hand, ended with {code}"


def check_failures(summary: Record, expected: Mapping[str, int]) -> Iterator[str]:
    """ps 0 has counted each failure; of several in one job it may miss those of tasks
    that had not yet come back."""
    for job, number in summary["failures"].items():
        most = expected.get(job, 0)
        if not min(most, 1) <= number <= most:
            yield f"failures: {number} of job {job} are counted, {most} happened"


def check_left(ending: Ending) -> Iterator[str]:
    """Nothing of it is left behind."""
    for what in ending.left:
        yield f"left behind: {what}"


def check_ledger(
    ending: Ending, run_dir: pathlib.Path, killed: float = 0.0
) -> Iterator[str]:
    """The ledger is exact. Who was started before the unix time `killed` has died."""
    if ending.summary is None:
        return
    deaths = ending.deaths()

    def died(who: str) -> bool:
        name, _, incarnation = who.rpartition("/")
        return int(incarnation) / 1e9 <= max(deaths.get(name, 0.0), killed)

    found = check_rows(read_traces(run_dir / "rows"), ending.summary["channels"], died)
    yield from (f"ledger: {sentence}" for sentence in found[:_SHOWN])
    if len(found) > _SHOWN:
        yield f"ledger: and {len(found) - _SHOWN} more"


def check_learned(ending: Ending) -> Iterator[str]:
    """The final evaluation has reached what the task is solved at."""
    evaluation = (ending.summary or {}).get("final_evaluation") or {}
    reached = evaluation.get("mean_return")
    if reached is None or reached < LEARNED_RETURN:
        yield f"learning: mean return {reached}, expected {LEARNED_RETURN:g}"


def check_ended(ending: Ending, delivery: Delivery) -> Iterator[str]:
    """The run has not survived, in bounded time, and says why.

    The file that a killed task was writing remains: nobody is left to remove it.
    """
    yield from check_deliveries([delivery])
    yield from check_left(ending)
    secs = ending.time - delivery.time
    if not ending.exit_code:
        yield f"exit code: {_exit(ending)}, though a task has failed"
    if secs > GONE_SECS:
        yield f"end: {secs:.1f} s after the fault, expected {GONE_SECS:g}"
    if not _names_cause("\n".join(_last(ending)), delivery):
        task = delivery.fault.task
        yield f"cause: the last lines do not say what happened to {task}"


def _names_cause(text: str, delivery: Delivery) -> bool:
    """A killed task by its exit code; one that was silent by words of others."""
    fault = delivery.fault
    if fault.kind == KILL:
        return f"{fault.job} {fault.task_index} failed with exit code -9" in text
    silent = rf"{fault.task}\b.*(lost|silent|no beats|not answer|unreachable|gone)"
    return re.search(silent, text) is not None


def _last(ending: Ending) -> list[str]:
    return [line for _, line in ending.lines[-_LAST_LINES:]]


def _exit(ending: Ending) -> str:
    code = ending.exit_code
    return "the run did not end" if code is None else f"the launcher's is {code}"


def _last_line(ending: Ending) -> str:
    """What the launcher said of the first failure, or at last."""
    failures = [line for _, line in ending.lines if " failed with exit code" in line]
    said = failures[:1] or [line for _, line in ending.lines[-1:]]
    return "".join(f" ({line})" for line in said)
