"""The children of a vector environment, as their parent sees them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil

from distrl.core.child_process import ChildDied, ChildLimits, ChildProcess
from distrl.core.specs import EnvironmentSpec
from distrl.environments.faults import Fault
from distrl.environments.slot_workers import PRELOAD, SlotWorker


class Worker:
    """One child and the slots that live in it."""

    def __init__(
        self,
        make: Callable[[int], Callable[[], SlotWorker]],
        slots: range,
        start_method: str,
        limits: ChildLimits,
    ) -> None:
        self.slots = slots
        self.rows = slice(slots.start, slots.stop)
        self.restarts = 0  # at least as many as any of its slots has seen
        self._make, self._start_method, self._limits = make, start_method, limits
        self.child = self._new()  # not started
        self.cpu_secs = 0.0  # of all its children, as last read
        self._earlier_cpu_secs = 0.0

    def _new(self) -> ChildProcess:
        first, last = self.slots[0], self.slots[-1]
        name = f"environment {first}" + (f" to {last}" if last > first else "")
        made = self._make(self.restarts)
        return ChildProcess(
            made, name, self._start_method, self._limits, preload=PRELOAD
        )

    def renew(self) -> None:
        """A new child, not started, in place of the one before, which is closed."""
        self.read_cpu()
        self._earlier_cpu_secs = self.cpu_secs
        self.restarts += 1
        child, self.child = self.child, self._new()
        child.close()

    def read_cpu(self) -> None:
        """Brings `cpu_secs` up to date, as long as the child is there to be asked."""
        if self.child.alive:
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(self.child.pid).cpu_times()
                self.cpu_secs = self._earlier_cpu_secs + times.user + times.system

    def check_spec(self, spec: EnvironmentSpec, expected: EnvironmentSpec) -> None:
        """Raises ValueError unless its environments are like environment 0."""
        if spec != expected:
            raise ValueError(
                f"environment {self.slots[0]} differs from environment 0: {spec} "
                f"instead of {expected}"
            )

    def is_lost(self, error: Exception) -> bool:
        """Whether the process hangs, or has ended (SystemExit is an error of its own),
        to judge by the error of a call."""
        gone = isinstance(error, ChildDied | TimeoutError)
        return gone or self.child.state == "failed"

    def fault(self, error: Exception, total: int) -> Fault:
        """The error as one of its environments' (it may say which), else its first."""
        slot = getattr(error, "environment_index", self.slots[0])
        return Fault.of(error, slot, total, "its process")

    def part(
        self, seeds: Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> tuple[Sequence[int | None] | None, Any]:
        """The seeds, and the options of a reset, for the slots of this one."""
        if options is not None and "reset_mask" in options:
            mask = np.asarray(options["reset_mask"])
            options = {**options, "reset_mask": mask[self.rows]}
        return None if seeds is None else seeds[self.rows], options
