"""What vector environments made of `Slots` share: arrays and a report become a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from distrl.core.nests import unflattener
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.environments.episode_totals import EpisodeTotals
from distrl.environments.infos import stack_infos
from distrl.environments.slot_records import SlotArrays, SlotReport, SlotSettings
from distrl.environments.vector_environment import (
    Info,
    VectorEnvironment,
    VectorStep,
    slots_to_reset,
)


class SlotVectorEnvironment(VectorEnvironment):
    """Episodes are summed up here from the rewards, unless the info of the step that
    ends one has `episode: {"r": return, "l": length}`.

    `num_restarts` counts the environments that were made anew behind an error.
    """

    num_restarts = 0

    def _describe(
        self,
        num_envs: int,
        settings: SlotSettings,
        spec: EnvironmentSpec,
        spaces: tuple[gymnasium.Space, gymnasium.Space],
        render_mode: str | None,
        sums_episodes: Sequence[bool],
    ) -> None:
        """To be called by the constructor, once the environments are known."""
        self.num_envs, self._settings, self.spec = num_envs, settings, spec
        self.observation_space, self.action_space = spaces
        self.autoreset_mode, self.render_mode = settings.autoreset_mode, render_mode
        self._unflatten = unflattener(spec.observation)
        self._sums_episodes = np.array(sums_episodes, bool)
        self._totals = EpisodeTotals(num_envs)
        self._ended = np.zeros(num_envs, bool)  # by the step before
        self._last: list[np.ndarray] = []  # observation of the step before, leaves

    def _keep_rows(
        self, observation: list[np.ndarray], options: dict[str, Any] | None
    ) -> None:
        """Fills in the slots that a reset with a mask leaves alone."""
        if options and "reset_mask" in options:
            for leaf, last in zip(observation, self._last, strict=False):
                leaf[:] = last

    def _first(
        self,
        observation: list[np.ndarray],
        report: SlotReport | None,
        options: dict[str, Any] | None,
    ) -> tuple[Nest, Info]:
        """The result of a reset, of these leaves. Raises the first fault."""
        mask = slots_to_reset(options, self.num_envs)
        self._totals.reset(mask)
        self._ended = self._ended & ~mask
        self._last = observation
        info: Info = {}
        if report is not None:
            info = self._news(report)
        return self._unflatten(observation), info

    def _result(self, arrays: SlotArrays, report: SlotReport | None) -> VectorStep:
        """The result of a step; keeps the arrays. Raises the first fault."""
        ended = arrays.terminated | arrays.truncated
        self._totals.add(arrays.reward, self._ended)
        info: Info = {}
        if ended.any() or (report is not None and report.episodes):
            info = self._finish_episodes(ended, report.episodes if report else {})
        if report is not None and report.interrupted:
            ended |= self._interrupt(arrays, report.interrupted)
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        self._ended = ended if next_step else np.zeros(self.num_envs, bool)
        self._last = arrays.observation
        if report is not None:
            info |= self._news(report)
        return VectorStep(
            self._unflatten(arrays.observation),
            arrays.reward.astype(np.float32),
            arrays.terminated,
            arrays.truncated,
            info,
        )

    def _interrupt(self, arrays: SlotArrays, slots: list[int]) -> np.ndarray:
        """Ends episodes whose environments were made anew; returns which, bool [N]."""
        for leaf, last in zip(arrays.observation, self._last, strict=True):
            leaf[slots] = last[slots]
        arrays.truncated[slots] = True
        mask = _mask(slots, self.num_envs)
        self._totals.reset(mask)
        return mask

    def _news(self, report: SlotReport) -> Info:
        """The infos of a report. Raises its first fault, once all is in order."""
        if report.restarted:
            self.num_restarts += len(report.restarted)
        if report.faults:
            failed = _mask(report.faults, self.num_envs)
            self._ended |= failed
            self._totals.reset(failed)
            first, *others = (report.faults[slot] for slot in sorted(report.faults))
            raise first.blame(others)
        info = stack_infos(report.infos, self.num_envs)
        if report.final:
            last = {
                slot: observation for slot, (observation, _) in report.final.items()
            }
            infos = {slot: info for slot, (_, info) in report.final.items()}
            info["final_obs"] = np.full(self.num_envs, None, object)
            for slot, observation in last.items():
                info["final_obs"][slot] = observation
            info["_final_obs"] = _mask(last, self.num_envs)
            info["final_info"] = stack_infos(infos, self.num_envs)
            info["_final_info"] = info["_final_obs"].copy()
        if report.restarted:
            info["restarted"] = _mask(report.restarted, self.num_envs)
        return info

    def _finish_episodes(self, ended: np.ndarray, reported: dict[int, Any]) -> Info:
        """What environments report goes before our own sums."""
        finished = ended & self._sums_episodes
        finished[list(reported)] = True
        if not finished.any():
            return {}
        info = self._totals.finish(finished)
        for slot, episode in reported.items():
            info["episode_return"][slot] = episode["r"]
            info["episode_length"][slot] = episode["l"]
        return info


def _mask(slots: Iterable[int], num_envs: int) -> np.ndarray:
    mask = np.zeros(num_envs, bool)
    mask[list(slots)] = True
    return mask
