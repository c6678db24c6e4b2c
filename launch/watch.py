"""From the start of the tasks to the end of the last one, whatever happens."""

from __future__ import annotations

import dataclasses
import queue
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from distrl.lifecycle.failure_policy import FAIL, IGNORE, RESTART, FailurePolicies
from launch.description import Task
from launch.processes import Event, Events, Processes, TaskExit
from launch.restarts import ENDED_BY_OTHERS, HOLD_TOGETHER, Decision, Restarts

ENDING_PHASES = ("stopping", "finished")


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long the launcher waits before it takes the next, harder step."""

    failure_grace_secs: float = 15.0  # from a failure to SIGTERM for all
    shutdown_secs: float = 60.0  # from a stop, or the end of ps 0, to SIGTERM for all
    kill_secs: float = 2.0  # from SIGTERM to SIGKILL
    reap_secs: float = 10.0  # from SIGKILL until what does not die is given up
    tick_secs: float = 1.0  # between two updates of the progress
    evaluation_secs: float = 1800.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run has ended."""

    exits: tuple[TaskExit, ...]  # in order of time; of each task the last one
    cause: TaskExit | None  # the failure that ended the run
    overdue: tuple[Task, ...]  # had to be ended from outside, without any failure
    stopped: bool  # a signal asked the launcher to end
    at_once: bool  # tasks were killed because of that, not ended in order

    @property
    def exit_code(self) -> int:
        """The launcher's."""
        if self.at_once:
            return 128 + signal.SIGINT
        return 1 if self.cause or self.overdue else 0


class Watch:
    """Follows the events of started tasks, starts them again where the run's policies
    want that, and ends what does not end by itself.

        outcome = Watch(tasks, processes, events, limits, say, look, restarts).run()

    The run ends in order when ps 0 gets a SIGTERM; everything harder is a last resort.
    `say` gets lines for the user; `look`, called every `tick_secs` and when a task
    fails, returns the newest status of ps 0 if there is a new one.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        processes: Processes,
        events: Events,
        limits: Limits,
        say: Callable[[str], None],
        look: Callable[[], dict[str, Any] | None],
        restarts: Restarts,
    ):
        self._alive = list(tasks)
        self._waiting: list[tuple[float, TaskExit]] = []  # when who is started again
        self._processes = processes
        self._events = events
        self._limits = limits
        self._say = say
        self._look = look
        self._restarts = restarts
        self._phase = ""
        self._next_tick = time.monotonic()
        self._due: list[tuple[float, int]] = []  # when all get which signal
        self._give_up = float("inf")
        self._exits: list[TaskExit] = []
        self._failures: list[TaskExit] = []
        self._overdue: tuple[Task, ...] = ()
        self._num_stops = 0
        self._asked = False  # ps 0 has been asked to end the run
        self._forced = False  # all tasks have got a signal
        self._at_once = False

    def run(self) -> Outcome:
        """Returns when no task runs."""
        while (self._alive or self._waiting) and time.monotonic() < self._give_up:
            event = self._next_event()
            if isinstance(event, TaskExit):
                self._on_exit(event)
            elif event is not None:
                self._on_stop()
            self._send_what_is_due()
            self._start_who_waits()
            if time.monotonic() >= self._next_tick:
                self._next_tick = time.monotonic() + self._limits.tick_secs
                self._take_status()
        self._take_status()
        real = [exit for exit in self._failures if exit.exit_code != ENDED_BY_OTHERS]
        return Outcome(
            tuple(self._exits),
            next(iter(real or self._failures), None),
            self._overdue,
            self._num_stops > 0,
            self._at_once,
        )

    def _next_event(self) -> Event | None:
        """None when it is time for something else first."""
        times = [when for when, _ in [*self._due, *self._waiting]]
        wake = min([self._next_tick, self._give_up, *times])
        try:
            return self._events.get(timeout=max(0.0, wake - time.monotonic()))
        except queue.Empty:
            return None

    # What ps 0 says.

    def _take_status(self) -> None:
        status = self._look()
        if status is None:
            return
        self._phase = status.get("phase", self._phase)
        if "failure_policies" in status:  # also those that a gin file has set
            self._restarts.policies = FailurePolicies(**status["failure_policies"])
        for name, incarnation in status.get("lost", {}).items():
            self._end_lost(name, incarnation)

    def _end_lost(self, name: str, incarnation: int) -> None:
        """Kills a task that ps 0 has given up: it is stopped, or leaves anyway. Its
        incarnation tells it from one that was started since."""
        for task in self._alive:
            place = (task.job, task.index)
            if f"{task.job}/{task.index}" == name and self._restarts.survives(task):
                if self._processes.kill_if_older(*place, incarnation):
                    self._say(f"{task.name} is lost; killing it")

    # What tasks do.

    def _on_exit(self, event: TaskExit) -> None:
        self._alive.remove(event.task)
        in_order = not event.exit_code
        if event.exit_code and not self._forced:
            decision = self._decide(event)
            if decision.action == RESTART:
                pause = self._restarts.pause_secs(event.task)
                self._waiting.append((time.monotonic() + pause, event))
                self._start_who_waits()
                return
            if decision.action == FAIL:
                self._on_failure(event, decision.words)
            in_order = decision.action == IGNORE
        self._on_end(event, in_order)

    def _on_end(self, event: TaskExit, in_order: bool) -> None:
        """A task has ended for good."""
        self._exits.append(event)
        only_ps = all(task.job == "ps" for task in self._present)
        if in_order and (only_ps or _is_chief_ps(event.task)):
            self._end_all_in(self._limits.shutdown_secs)
        if _is_chief_ps(event.task):
            self._end_newcomers()

    def _decide(self, event: TaskExit) -> Decision:
        """What to do about a failure, which is told to the user unless it is fatal."""
        self._take_status()
        alone = all(task.job == "ps" for task in self._present)
        ps = any(_is_chief_ps(task) for task in [*self._present, event.task])
        ending = self._ends or not ps
        unwatched = event.task.job == "ps" and (self._asked or alone or self._summed_up)
        if self._failures or unwatched:
            return Decision(FAIL, "ending the run")
        decision = self._restarts.decide(event, ending)
        if decision.action != FAIL:
            self._say(f"{describe_exit(event)}; {decision.words}")
        return decision

    @property
    def _present(self) -> list[Task]:
        """Who runs, or will run again."""
        return [*self._alive, *(event.task for _, event in self._waiting)]

    @property
    def _ends(self) -> bool:
        return self._asked or self._phase in ENDING_PHASES

    @property
    def _summed_up(self) -> bool:
        """Whether the learner has left in order: nobody could fill another ps 0."""
        ended = {exit.task.name for exit in self._exits if not exit.exit_code}
        return "learner 0" in ended

    def _start_who_waits(self) -> None:
        """Starts tasks whose time has come; a run that ends does without most."""
        now = time.monotonic()
        for entry in list(self._waiting):
            when, event = entry
            needed = event.task.job in HOLD_TOGETHER or not self._ends
            if self._failures or self._forced or not needed:
                self._waiting.remove(entry)
                self._on_end(event, in_order=not self._failures)
            elif when <= now:
                self._waiting.remove(entry)
                self._start_again(event)

    def _start_again(self, event: TaskExit) -> None:
        again = event.task.again()
        try:
            self._processes.start_again(again)
        except OSError as error:
            self._say(f"{again.name} cannot be started again: {error}")
            self._on_failure(event, "ending the run")
            self._on_end(event, in_order=False)
        else:
            self._alive.append(again)

    def _end_newcomers(self) -> None:
        """Who was started again and comes after ps 0 has left would wait for it."""
        for task in self._alive:
            if task.restart:
                self._processes.signal(task.job, task.index, signal.SIGTERM)

    def _on_failure(self, event: TaskExit, words: str) -> None:
        if (
            self._asked
            and _is_chief_ps(event.task)
            and -event.exit_code == signal.SIGTERM
        ):
            # It could not yet catch the signal: there is no run to end in order.
            self._at_once = not self._failures
            self._end_all_in(0.0)
            return
        self._failures.append(event)
        if len(self._failures) == 1:
            self._say(f"{describe_exit(event)}; {words}")
            self._ask()
            self._end_all_in(self._limits.failure_grace_secs)

    def _on_stop(self) -> None:
        self._num_stops += 1
        if self._num_stops == 1:
            self._say("stopping; press Ctrl-C again to end at once")
            self._ask()
            self._end_all_in(self._limits.shutdown_secs)
        else:
            self._at_once = True
            self._due.append((0.0, signal.SIGKILL))

    def _ask(self) -> None:
        """Once only: a second SIGTERM would end ps 0 at once."""
        if not self._asked:
            self._asked = True
            self._processes.signal("ps", 0, signal.SIGTERM)

    def _end_all_in(self, seconds: float) -> None:
        when = time.monotonic() + seconds
        self._due.append((when, signal.SIGTERM))
        self._due.append((when + self._limits.kill_secs, signal.SIGKILL))

    def _send_what_is_due(self) -> None:
        now = time.monotonic()
        due = [number for when, number in self._due if when <= now]
        self._due = [later for later in self._due if later[0] > now]
        for number in due:
            if not (self._forced or self._failures or self._at_once):
                self._overdue = tuple(self._alive)
            self._forced = True
            self._processes.signal_all(number)
            if number == signal.SIGKILL:
                self._give_up = min(self._give_up, now + self._limits.reap_secs)


def describe_exit(event: TaskExit) -> str:
    """For example: actor 1 failed with exit code -9 (SIGKILL)."""
    code, name = event.exit_code, event.task.name
    if code == ENDED_BY_OTHERS:
        return f"{name} ended because of another task's failure (exit code {code})"
    signal_names = {-number: f" ({number.name})" for number in signal.Signals}
    return f"{name} failed with exit code {code}{signal_names.get(code, '')}"


def _is_chief_ps(task: Task) -> bool:
    return (task.job, task.index) == ("ps", 0)
