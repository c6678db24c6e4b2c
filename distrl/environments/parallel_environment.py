"""A batch of environments, each in a process of its own, over pipes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from distrl.core.child_process import ChildLimits, Promise
from distrl.core.nests import flatten_as, unflatten_as
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import Nest
from distrl.environments.process_slots import ProcessSlots
from distrl.environments.process_workers import Worker
from distrl.environments.serial_vector_environment import check_factory
from distrl.environments.slot_records import SlotReport, SlotSettings, new_arrays
from distrl.environments.slot_workers import PipeWorker, check_actions
from distrl.environments.slots import Factory


class ParallelEnvironment(ProcessSlots):
    """Environments that need not come from one factory, such as levels of a game.

    Observations and actions are pickled, so SharedMemoryVectorEnvironment is faster for
    large ones. In the shape of TF-Agents' ParallelPyEnvironment.
    """

    def __init__(
        self,
        environment_factories: Sequence[Factory],
        seeds: EnvironmentSeeds | None = None,
        settings: SlotSettings = SlotSettings(),
        start_serially: bool = False,
        blocking: bool = False,
        flatten: bool = False,
        start_method: str = "forkserver",
        limits: ChildLimits = ChildLimits(),
    ):
        """Starts a process for each factory.

        Args:
          environment_factories: at least one; their environments have equal specs.
          seeds: of the environments' first resets.
          settings: what any back-end takes.
          start_serially: waits for each process before it starts the next one.
          blocking: steps and resets one environment after the other.
          flatten: lists of leaves travel in place of nests; the result is the same.
          start_method: "forkserver" or "spawn"; "fork" only without TensorFlow;
            "inline" starts nothing: the environments live in this process, without
            pickling and without limits (see ChildProcess).
          limits: on waiting for starts, steps, and the end.

        Raises what SharedMemoryVectorEnvironment raises.
        """
        factories = list(environment_factories)
        if not factories:
            raise ValueError("expected at least one environment factory, got none")
        for factory in factories:
            check_factory(factory, len(factories))
        self._blocking, self._flatten = blocking, flatten
        worker = functools.partial(PipeWorker, flatten=flatten)
        super().__init__(
            *(worker, factories, 1, seeds, settings, start_method, limits),
            start_serially=start_serially,
        )

    def _begin(self) -> None:
        self._out = new_arrays(self.spec, self.num_envs)

    def _put_actions(self, actions: Nest) -> None:
        self._actions = check_actions(self.spec, actions, self.num_envs)

    def _ask_reset(
        self,
        worker: Worker,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
    ) -> Promise:
        return self._asked(worker.child.call("reset", seeds, options))

    def _ask_step(self, worker: Worker) -> Promise:
        own: Any = [leaf[worker.rows] for leaf in self._actions]
        if not self._flatten:
            own = unflatten_as(self.spec.action, own)
        return self._asked(worker.child.call("step", own))

    def _asked(self, promise: Promise) -> Promise:
        if self._blocking:
            promise.outcome()
        return promise

    def _take(self, worker: Worker, reply: Any) -> SlotReport | None:
        arrays, report = reply
        observation = arrays.observation
        if not self._flatten:
            observation = flatten_as(self.spec.observation, observation)
        found = [*observation, *arrays[1:]]
        ours = [*self._out.observation, *self._out[1:]]
        for own, array in zip(ours, found, strict=True):
            own[worker.rows] = array
        return report
