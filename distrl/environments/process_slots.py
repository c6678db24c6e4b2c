"""Vector environments whose slots are dealt out over child processes."""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from distrl.core.child_process import (
    ChildLimits,
    Outcome,
    Promise,
    close_all,
    collect,
)
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import Nest
from distrl.environments.process_workers import Worker
from distrl.environments.restarts import RestartBudget
from distrl.environments.slot_records import SlotArrays, SlotReport, SlotSettings
from distrl.environments.slot_vector_environment import SlotVectorEnvironment
from distrl.environments.slot_workers import Description, SlotWorker
from distrl.environments.slots import Factory
from distrl.environments.vector_environment import Info, VectorStep, slots_to_reset


class ProcessSlots(SlotVectorEnvironment):
    """Steps all children at once; each does its own slots one after the other.

    A child that dies, or that does not answer within the limit, is replaced while the
    settings' `restart_on_error` allows it: its episodes are cut (truncated), its slots
    reset by the next step. Otherwise ChildDied or TimeoutError names it.
    """

    def __init__(
        self,
        worker: Callable[..., SlotWorker],
        factories: Sequence[Factory],
        environments_per_process: int,
        seeds: EnvironmentSeeds | None,
        settings: SlotSettings,
        start_method: str,
        limits: ChildLimits,
        start_serially: bool = False,
    ):
        total = len(factories)
        self._limits = limits
        self._budget = RestartBudget(settings.restart_on_error)
        self._paid: set[Worker] = set()  # late ones that will be replaced
        self._over = np.zeros(total, bool)  # slots that must be reset (DISABLED)
        self._promises: list[Promise] = []

        def made(slots: range, restart: int) -> Callable[[], SlotWorker]:
            own_seeds = None if seeds is None else seeds.behind(slots.start)
            own = [factories[slot] for slot in slots]
            arguments = (own, settings, own_seeds, slots.start, total, restart)
            return functools.partial(worker, *arguments)

        starts = range(0, total, environments_per_process)
        parts = [range(s, min(s + environments_per_process, total)) for s in starts]
        self._workers = [
            Worker(functools.partial(made, part), part, start_method, limits)
            for part in parts
        ]
        try:
            found = self._start_all(start_serially)
            first = found[0]
            for one, description in zip(self._workers, found, strict=True):
                one.check_spec(description.spec, first.spec)
            spaces = first.observation_space, first.action_space
            sums = [each for one in found for each in one.sums_episodes]
            self._describe(total, settings, first.spec, spaces, first.render_mode, sums)
            connected = [self._connect(one) for one in self._workers]
            for promise in itertools.chain(*connected):
                promise.result()
        except BaseException:
            self._close()
            raise

    def _start_all(self, serially: bool) -> list[Description]:
        found = []
        for worker in self._workers:
            worker.child.start()
            if serially:
                found.append(worker.child.wait_ready())
        return found or [worker.child.wait_ready() for worker in self._workers]

    # What subclasses do. `_out` are the arrays of the step (or reset) under way.

    _out: SlotArrays

    def _connect(self, worker: Worker) -> list[Promise]:
        """Prepares the exchange with a worker; promises that it is done."""
        return []

    @abc.abstractmethod
    def _begin(self) -> None:
        """Sets `_out`."""

    @abc.abstractmethod
    def _put_actions(self, actions: Nest) -> None:
        """Makes actions ready for `_ask_step`. Raises ValueError if they don't fit."""

    @abc.abstractmethod
    def _ask_reset(
        self,
        worker: Worker,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
    ) -> Promise: ...

    @abc.abstractmethod
    def _ask_step(self, worker: Worker) -> Promise: ...

    @abc.abstractmethod
    def _take(self, worker: Worker, reply: Any) -> SlotReport | None:
        """Puts the rows of a reply into `_out`; returns its report."""

    def _finished(self) -> SlotArrays:
        """`_out`, to be handed out."""
        return self._out

    # The calls.

    def _reset(
        self,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        timeout: float | None,
    ) -> tuple[Nest, Info]:
        self._begin()
        self._keep_rows(self._out.observation, options)
        promises = [self._ask_reset(w, *w.part(seeds, options)) for w in self._workers]
        outcomes = collect(promises, self._seconds(timeout))
        try:
            self._check_late(outcomes, timeout)
        except TimeoutError:
            self._was_reset = False  # some are, some are not
            raise
        mask = slots_to_reset(options, self.num_envs)
        report = self._merged(outcomes, np.ones(self.num_envs, bool), seeds, options)
        if report is not None:
            renewed = np.array(report.restarted, int)  # some may not be in the mask
            self._totals.reset(renewed)
            self._ended[renewed] = False
        self._note_ends(self._over & ~mask, report)
        return self._first(self._finished().observation, report, options)

    def _start_step(self, actions: Nest) -> None:
        self._put_actions(actions)
        if self._over.any():
            raise ResetNeeded(
                f"environment {self._over.argmax()} has ended: reset it with "
                'options={"reset_mask": ...}'
            )
        self._begin()
        self._promises = [self._ask_step(worker) for worker in self._workers]

    def _finish_step(self, timeout: float | None) -> VectorStep:
        outcomes = collect(self._promises, self._seconds(timeout))
        self._check_late(outcomes, timeout)
        self._pending = False  # whatever is raised from here on, a TimeoutError too
        report = self._merged(outcomes, self._ended)
        self._note_ends(self._out.terminated | self._out.truncated, report)
        return self._result(self._finished(), report)

    def _seconds(self, timeout: float | None) -> float:
        return self._limits.call_secs if timeout is None else timeout

    def _check_late(self, outcomes: Sequence[Outcome], timeout: float | None) -> None:
        """Raises the TimeoutError of a worker, before any reply has been used.

        Unless nobody gave a `timeout` and the worker may be replaced.
        """
        for worker, outcome in zip(self._workers, outcomes, strict=True):
            if isinstance(outcome.error, TimeoutError) and worker not in self._paid:
                if timeout is not None or not self._budget.spend():
                    raise outcome.error
                self._paid.add(worker)

    def _note_ends(self, over: np.ndarray, report: SlotReport | None) -> None:
        """Remembers what `Slots` would not step (DISABLED): raised before any steps."""
        if self.autoreset_mode is AutoresetMode.DISABLED:
            self._over = over
            self._over[list(report.faults if report else [])] = True

    def _merged(
        self,
        outcomes: Sequence[Outcome],
        resets: np.ndarray,
        seeds: Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> SlotReport | None:
        """One report of all workers, about the slots of the whole.

        Workers that were lost are replaced, and their slots in `resets` (bool [N])
        reset. Raises what else went wrong, such as infos that cannot be pickled; all
        must be reset then.
        """
        merged = SlotReport.empty()
        for worker, outcome in zip(self._workers, outcomes, strict=True):
            if outcome.error is None:
                report = self._taken(worker, outcome.value)
            elif worker.is_lost(outcome.error):
                asked = worker.part(seeds, {**(options or {}), "reset_mask": resets})
                report = self._lost(worker, outcome.error, *asked)
            else:
                self._was_reset = False
                raise worker.fault(outcome.error, self.num_envs).blame()
            if report is not None:
                merged.add(report, worker.slots.start)
        self._paid.clear()
        return merged if any(merged) else None

    def _taken(self, worker: Worker, reply: Any) -> SlotReport | None:
        report = self._take(worker, reply)
        if report is not None:
            worker.restarts += len(report.restarted)
        return report

    def _lost(
        self, worker: Worker, error: Exception, seeds: Any, options: dict[str, Any]
    ) -> SlotReport:
        """A worker is dead or hangs: a new one, or the fault of all its slots."""
        while worker in self._paid or self._budget.spend():
            self._paid.discard(worker)
            try:
                return self._replace(worker, seeds, options)
            except Exception as second:
                error = second
        fault = worker.fault(error, self.num_envs)
        faults = dict.fromkeys(range(len(worker.slots)), fault)
        return SlotReport.empty()._replace(faults=faults)

    def _replace(
        self, worker: Worker, seeds: Any, options: dict[str, Any]
    ) -> SlotReport:
        """Starts a new process for the slots of one; cuts the episodes that ran.

        Slots of the `reset_mask` are reset now, the others by the next step.
        """
        worker.renew()
        worker.child.start()
        connected = self._connect(worker)
        worker.child.wait_ready()
        for promise in connected:
            promise.result()
        for array in self._out[1:]:
            array[worker.rows] = 0
        report = SlotReport.empty()
        resets = options["reset_mask"]
        if resets.any():
            promise = self._ask_reset(worker, seeds, options)
            report = self._taken(worker, promise.result()) or report
        report.restarted.extend(range(len(worker.slots)))
        report.interrupted.extend(np.flatnonzero(~resets).tolist())
        return report

    def _call(
        self, name: str, args: tuple, kwargs: dict[str, Any], attribute: bool = False
    ) -> list[Any]:
        results = self._all("call", lambda _: (name, args, kwargs, attribute))
        return [value for values in results for value in values]

    def _set_attr(self, name: str, values: Sequence[Any]) -> None:
        self._all("set_attr", lambda worker: (name, values[worker.rows]))

    def _all(self, method: str, arguments: Callable[[Worker], tuple]) -> list[Any]:
        """What a method of each worker returns. Raises the first error, once all have
        answered."""
        promises = [w.child.call(method, *arguments(w)) for w in self._workers]
        outcomes = collect(promises, self._limits.call_secs)
        for worker, outcome in zip(self._workers, outcomes, strict=True):
            if outcome.error is not None:
                raise worker.fault(outcome.error, self.num_envs).blame()
        return [outcome.value for outcome in outcomes]

    def child_cpu_secs(self) -> float:
        """Those that have been closed included."""
        if not self._closed:
            for worker in self._workers:
                worker.read_cpu()
        return sum(worker.cpu_secs for worker in self._workers)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(f"a {kind} cannot be copied or pickled: it owns processes")

    def _close(self) -> None:
        for worker in self._workers:
            worker.read_cpu()
        close_all(worker.child for worker in self._workers)
