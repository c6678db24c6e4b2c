"""Environments in this thread that step into given arrays: what every back-end runs.

SerialVectorEnvironment has one `Slots` of all its environments, a worker process one of
its share.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from distrl.core.errors import DistrlError
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.environments.faults import Fault
from distrl.environments.observation_writer import observation_writer
from distrl.environments.restarts import RestartBudget
from distrl.environments.slot_records import SlotArrays, SlotReport, SlotSettings
from distrl.environments.spaces import (
    environment_spec,
    observation_check,
    reports_episodes,
    split_actions,
)

Factory = Callable[[], gymnasium.Env]


class Slots:
    """Environments `first` … of a vector environment of `total`.

    What an environment raises does not escape from `reset` or `step`: it is in the
    report, the other slots go on, and the slot is reset by the next step.
    """

    def __init__(
        self,
        factories: Sequence[Factory],
        settings: SlotSettings = SlotSettings(),
        seeds: EnvironmentSeeds | None = None,
        first: int = 0,
        total: int | None = None,
        restart: int = 0,
    ):
        """Makes the environments, one a factory; `restart` says how often this was
        done before in this run.

        Raises ConfigError for an unsupported space, ValueError for environments that
        differ, TypeError for what is no environment, and what a factory raises, blamed
        on its index.
        """
        number = len(factories)
        self._factories, self._settings, self._seeds = factories, settings, seeds
        self._first, self._total = first, number if total is None else total
        self._budget = RestartBudget(settings.restart_on_error)
        self._restarts = [restart] * number
        self.environments: list[gymnasium.Env] = []
        try:
            for slot in range(number):
                self.environments.append(self._make(slot))
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise
        first_one = self.environments[0]
        self.observation_space = first_one.observation_space
        self.action_space = first_one.action_space
        self.render_mode = first_one.render_mode
        self.sums_episodes = [not reports_episodes(e) for e in self.environments]
        self._steps = [environment.step for environment in self.environments]
        self._check = observation_check(self.spec.observation)
        self._write = observation_writer(self.spec.observation)
        self._new = [True] * number  # not reset yet since they were made
        self._resetting = [True] * number

    def _make(self, slot: int) -> gymnasium.Env:
        try:
            environment = self._factories[slot]()
            if not isinstance(environment, gymnasium.Env):
                hint = " (in gin: @name() with brackets)" * callable(environment)
                raise TypeError(f"not a gymnasium.Env: {environment!r}{hint}")
        except DistrlError:
            raise
        except Exception as error:
            blamed = self.fault(slot, "its constructor", error).blame()
            raise blamed from blamed.__cause__
        try:
            self._check_spec(slot, environment_spec(environment))
        except BaseException:
            with contextlib.suppress(Exception):
                environment.close()
            raise
        return environment

    def _check_spec(self, slot: int, spec: EnvironmentSpec) -> None:
        if not hasattr(self, "spec"):
            self.spec: EnvironmentSpec = spec
        elif spec != self.spec:
            raise ValueError(
                f"environment {self._first + slot} differs from environment "
                f"{self._first}: {spec} instead of {self.spec}"
            )

    def fault(self, slot: int, place: str, error: BaseException) -> Fault:
        return Fault.of(error, self._first + slot, self._total, place)

    def reset(
        self,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        out: SlotArrays,
    ) -> SlotReport | None:
        """Resets all slots, or those of `options["reset_mask"]` (bool [N], DISABLED).

        Seeds given here go before those of the constructor. The rows of the others are
        left as they are.
        """
        report = SlotReport.empty()
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        for slot in range(len(self.environments)):
            if mask is not None and not mask[slot]:
                continue
            seed = None if seeds is None else seeds[slot]
            try:
                info = self._reset_slot(slot, out, report, seed, options or None)
            except Exception as error:
                self._resetting[slot] = True
                report.faults[slot] = self.fault(slot, "reset", error)
                continue
            if self._settings.keep_infos:
                report.infos[slot] = info
        return report if any(report) else None

    def split(self, actions: Nest) -> Sequence[Any]:
        """One action a slot from a nest of `[N, ...]` arrays. Raises ValueError for
        another shape or number, ResetNeeded for a slot that has ended (DISABLED)."""
        rows = split_actions(self.action_space, actions)
        if len(rows) != len(self.environments):
            raise ValueError(
                f"expected {len(self.environments)} actions, got {len(rows)}"
            )
        if self._settings.autoreset_mode is AutoresetMode.DISABLED and any(
            self._resetting
        ):
            slot = self._resetting.index(True)
            raise ResetNeeded(
                f"environment {self._first + slot} has ended: reset it with "
                'options={"reset_mask": ...}'
            )
        return rows

    def step(self, rows: Sequence[Any], out: SlotArrays) -> SlotReport | None:
        """Steps or resets every slot; `rows` are the actions that `split` returned."""
        report = SlotReport.empty()
        rewards, write, steps = out.reward, self._write, self._steps
        observation, resetting = out.observation, self._resetting
        keep_infos = self._settings.keep_infos
        for array in out[1:]:
            array.fill(0)
        for slot, action in enumerate(rows):
            try:
                if resetting[slot]:
                    info = self._reset_slot(slot, out, report)
                    if "episode" in info:
                        report.episodes[slot] = info["episode"]
                else:
                    value, rewards[slot], ended, cut, info = steps[slot](action)
                    write(observation, slot, value)
                    if ended or cut:
                        out.terminated[slot], out.truncated[slot] = ended, cut
                        info = self._end_episode(slot, value, info, out, report)
                if keep_infos:
                    report.infos[slot] = info
            except Exception as error:
                self._fail(slot, error, out, report)
        return report if any(report) else None

    def _end_episode(
        self,
        slot: int,
        value: Any,
        info: dict[str, Any],
        out: SlotArrays,
        report: SlotReport,
    ) -> dict[str, Any]:
        """What the autoreset mode asks for; returns the info of the step's row."""
        if "episode" in info:
            report.episodes[slot] = info["episode"]
        if self._settings.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._resetting[slot] = True
            return info
        report.final[slot] = copy.deepcopy(value), info
        return self._reset_slot(slot, out, report)

    def _reset_slot(
        self,
        slot: int,
        out: SlotArrays,
        report: SlotReport,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Resets a slot, checks and writes its observation, returns its info.

        An environment that fails is made anew while the budget lasts.
        """
        while True:
            try:
                return self._try_reset(slot, out, seed, options)
            except Exception:
                if not self._renew(slot, report):
                    raise

    def _try_reset(
        self,
        slot: int,
        out: SlotArrays,
        seed: int | None,
        options: dict[str, Any] | None,
    ) -> dict[str, Any]:
        environment = self.environments[slot]
        if seed is None and self._new[slot] and self._seeds is not None:
            seed = self._seeds.of(slot, self._restarts[slot])
        if seed is not None:
            environment.action_space.seed(seed)
        value, info = environment.reset(seed=seed, options=options)
        self._check(value)
        self._write(out.observation, slot, value)
        self._new[slot] = self._resetting[slot] = False
        return info

    def _fail(
        self, slot: int, error: Exception, out: SlotArrays, report: SlotReport
    ) -> None:
        """A step of one slot has raised: makes its environment anew, or reports it."""
        place = "reset" if self._resetting[slot] else "step"
        interrupts = not self._resetting[slot]
        self._resetting[slot] = True
        out.reward[slot], out.terminated[slot], out.truncated[slot] = 0.0, False, False
        if interrupts and self._renew(slot, report):
            report.interrupted.append(slot)
        else:
            report.faults[slot] = self.fault(slot, place, error)

    def _renew(self, slot: int, report: SlotReport) -> bool:
        """Makes an environment anew; False when the budget is spent on attempts."""
        while self._budget.spend():
            with contextlib.suppress(Exception):
                self.environments[slot].close()
            self._restarts[slot] += 1
            report.restarted.append(slot)
            with contextlib.suppress(Exception):
                self.environments[slot] = self._make(slot)
                self._steps[slot] = self.environments[slot].step
                self._new[slot] = True
                return True
        return False

    def call(
        self, name: str, args: tuple, kwargs: dict[str, Any], attribute: bool = False
    ) -> list[Any]:
        """By slot, what a method returns, or an attribute's value. Raises the first
        error, once all have been called."""

        def one(slot: int) -> Any:
            value = self.environments[slot].get_wrapper_attr(name)
            return value if attribute or not callable(value) else value(*args, **kwargs)

        return self._each(name, one)

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        self._each(
            name,
            lambda slot: self.environments[slot].set_wrapper_attr(name, values[slot]),
        )

    def close(self) -> None:
        """Closes every environment; raises the first error of those that failed."""
        try:
            self._each("close", lambda slot: self.environments[slot].close())
        finally:
            self.environments = []

    def _each(self, place: str, function: Callable[[int], Any]) -> list[Any]:
        results, faults = [], []
        for slot in range(len(self.environments)):
            try:
                results.append(function(slot))
            except Exception as error:
                faults.append(self.fault(slot, place, error))
        if faults:
            raise faults[0].blame()
        return results
