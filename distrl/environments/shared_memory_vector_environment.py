"""Environments in child processes that write into memory which we share with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from distrl.core.child_process import ChildLimits, Promise
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.shared_arrays import SharedArrays
from distrl.core.specs import Nest
from distrl.environments.process_slots import ProcessSlots
from distrl.environments.process_workers import Worker
from distrl.environments.serial_vector_environment import check_factory
from distrl.environments.slot_records import SlotArrays, SlotReport, SlotSettings
from distrl.environments.slot_workers import (
    SharedMemoryWorker,
    check_actions,
    shared_fields,
    split_fields,
)
from distrl.environments.slots import Factory


class SharedMemoryVectorEnvironment(ProcessSlots):
    """The fastest kind for environments whose step takes longer than about 100 µs.

    Observations, rewards, flags and actions are in one block of shared memory; a step
    costs one short message to and from each process. Cheaper environments are faster in
    a SerialVectorEnvironment: no message is as cheap as they are.
    """

    def __init__(
        self,
        environment_factory: Factory,
        num_envs: int,
        seeds: EnvironmentSeeds | None = None,
        settings: SlotSettings = SlotSettings(),
        environments_per_process: int | None = None,
        start_method: str = "forkserver",
        copy: bool = True,
        limits: ChildLimits = ChildLimits(),
    ):
        """Starts the processes and waits for them.

        Args:
          environment_factory: called once for each environment, in its process.
          num_envs: at least 1.
          seeds: of the environments' first resets.
          settings: what any back-end takes.
          environments_per_process: None for as many processes as there are cores.
          start_method: "forkserver" or "spawn"; "fork" only without TensorFlow;
            "inline" starts nothing: the environments live in this process, without
            pickling and without limits (see ChildProcess).
          copy: whether observations that were returned are the caller's own. If not,
            they are valid until the next step but one writes over them.
          limits: on waiting for starts, steps, and the end.

        Raises what SerialVectorEnvironment raises, and ChildDied or TimeoutError for a
        process that does not come up.
        """
        check_factory(environment_factory, num_envs)
        each = environments_per_process
        if each is None:
            each = -(-num_envs // min(num_envs, len(os.sched_getaffinity(0))))
        if each < 1:
            raise ValueError(f"environments_per_process must be at least 1, got {each}")
        self._copies, self._turn = copy, 0
        self._num_buffers = 1 if copy else 2
        self._shared: SharedArrays | None = None
        factories = [environment_factory] * num_envs
        super().__init__(
            SharedMemoryWorker, factories, each, seeds, settings, start_method, limits
        )

    def _connect(self, worker: Worker) -> list[Promise]:
        if self._shared is None:
            fields = shared_fields(self.spec, self.num_envs, self._num_buffers)
            self._shared = SharedArrays.create(fields)
            self._buffers, self._actions = split_fields(
                self.spec, self._shared.arrays, self._num_buffers
            )
        shared = self._shared
        arguments = shared.layout, self._num_buffers
        return [worker.child.send_descriptor("attach", shared.fd, *arguments)]

    def _begin(self) -> None:
        self._turn = (self._turn + 1) % self._num_buffers
        self._out = self._buffers[self._turn]

    def _put_actions(self, actions: Nest) -> None:
        checked = check_actions(self.spec, actions, self.num_envs)
        for shared, action in zip(self._actions, checked, strict=True):
            shared[...] = action

    def _ask_reset(
        self,
        worker: Worker,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
    ) -> Promise:
        return worker.child.call("reset", self._turn, seeds, options)

    def _ask_step(self, worker: Worker) -> Promise:
        return worker.child.call("step", self._turn)

    def _take(self, worker: Worker, reply: Any) -> SlotReport | None:
        return reply

    def _finished(self) -> SlotArrays:
        observation, *rest = self._out
        if self._copies:
            observation = [leaf.copy() for leaf in observation]
        return SlotArrays(observation, *(array.copy() for array in rest))

    def _close(self) -> None:
        super()._close()
        if self._shared is None:
            return
        self._buffers, self._actions, self._last = [], [], []
        if hasattr(self, "_out"):  # or the memory would stay as long as this object
            del self._out
        self._shared.close()
