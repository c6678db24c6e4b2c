"""Any Gymnasium environments, stepped one after the other in this thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from distrl.core.errors import DistrlError
from distrl.core.nests import unflatten_as
from distrl.core.specs import ArraySpec, EnvironmentSpec, Nest, leaves
from distrl.environments.spaces import (
    WrongObservation,
    check_observation,
    environment_spec,
    leaf_getters,
    reports_episodes,
    split_actions,
)
from distrl.environments.vector_environment import (
    EpisodeTotals,
    VectorEnvironment,
    VectorStep,
    check_seeds,
)


class SerialVectorEnvironment(VectorEnvironment):
    """N environments in this thread: the fastest kind for environments that are cheap.

    Episodes are summed up here from the rewards, unless the info of the step that ends
    one has `episode: {"r": return, "l": length}`.
    """

    def __init__(
        self,
        environment_factory: Callable[[], gymnasium.Env],
        num_envs: int,
        seeds: Sequence[int] | None = None,
    ):
        """Makes the environments.

        Args:
          environment_factory: called once for each environment.
          num_envs: at least 1.
          seeds: one for each environment, used by the first `reset()`.

        Raises ConfigError for an unsupported space, ValueError for other bad arguments
        or environments whose spaces differ, RuntimeError when the factory raises.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        check_seeds(seeds, num_envs)
        self.num_envs = num_envs
        self._first_seeds = seeds
        self._environments: list[gymnasium.Env] = []
        try:
            for _ in range(num_envs):
                self._make(environment_factory)
        except BaseException:
            with contextlib.suppress(RuntimeError):
                self.close()
            raise
        self._sums_episodes = ~np.array(
            [reports_episodes(environment) for environment in self._environments]
        )
        self._action_space = self._environments[0].action_space
        self._steps = [environment.step for environment in self._environments]
        self._leaf_specs = leaves(self.spec.observation)
        self._shapes = [leaf.shape for leaf in self._leaf_specs]
        self._getters = leaf_getters(self.spec.observation)
        bare = isinstance(self.spec.observation, ArraySpec)
        self._write = self._write_array if bare else self._write_nest
        self._totals = EpisodeTotals(num_envs)
        self._resetting: np.ndarray | None = None  # bool [N]

    def _make(self, environment_factory: Callable[[], gymnasium.Env]) -> None:
        index = len(self._environments)
        try:
            self._environments.append(environment_factory())
        except DistrlError:
            raise
        except Exception as error:
            raise self._failure(index, error) from error
        spec: EnvironmentSpec = environment_spec(self._environments[-1])
        if index == 0:
            self.spec = spec
        elif spec != self.spec:
            raise ValueError(
                f"environment {index} differs from environment 0: "
                f"{spec} instead of {self.spec}"
            )

    def reset(self, seeds: Sequence[int] | None = None) -> Nest:
        if not self._environments:
            raise RuntimeError("reset() of an environment that was closed")
        check_seeds(seeds, self.num_envs)
        if seeds is None:
            seeds = self._first_seeds
        self._first_seeds = None
        buffers = self._new_buffers()
        index = 0
        try:
            for index in range(self.num_envs):
                self._reset_one(buffers, index, None if seeds is None else seeds[index])
        except Exception as error:
            raise self._failure(index, error) from error
        self._totals.reset()
        self._resetting = np.zeros(self.num_envs, bool)
        return unflatten_as(self.spec.observation, buffers)

    def step(self, actions: Nest) -> VectorStep:
        """Raises RuntimeError, naming the environment, from what an environment raised;
        ValueError for actions or observations of the wrong shape. Behind an error of an
        environment only `reset()` goes on, for the others have stepped."""
        resetting = self._resetting
        if resetting is None:
            raise RuntimeError("step() of an environment that was closed or not reset")
        rows = split_actions(self._action_space, actions)
        if len(rows) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} actions, got {len(rows)}")
        buffers = self._new_buffers()
        rewards = np.zeros(self.num_envs)  # float64, for the sums
        terminated = np.zeros(self.num_envs, bool)
        truncated = np.zeros(self.num_envs, bool)
        reported: dict[int, Any] = {}
        write, steps, reset = self._write, self._steps, resetting.tolist()
        index = 0
        try:
            for index, action in enumerate(rows):
                if reset[index]:
                    info = self._reset_one(buffers, index)
                    ended = cut = True
                else:
                    value, rewards[index], ended, cut, info = steps[index](action)
                    write(buffers, index, value)
                    if ended:
                        terminated[index] = True
                    if cut:
                        truncated[index] = True
                if (ended or cut) and "episode" in info:
                    reported[index] = info["episode"]
        except Exception as error:
            self._resetting = None
            raise self._failure(index, error) from error
        self._resetting = terminated | truncated
        self._totals.add(rewards, resetting)
        return VectorStep(
            unflatten_as(self.spec.observation, buffers),
            rewards.astype(np.float32),
            terminated,
            truncated,
            self._finish_episodes(self._resetting, reported),
        )

    def close(self) -> None:
        """Closes every environment; raises the first error of those that failed."""
        environments, self._environments = self._environments, []
        self._resetting = None
        failures = []
        for index, environment in enumerate(environments):
            try:
                environment.close()
            except Exception as error:
                failures.append((index, error))
        if failures:
            raise self._failure(*failures[0]) from failures[0][1]

    def _new_buffers(self) -> list[np.ndarray]:
        """Unwritten `[N, ...]` leaves, new ones each step as they are handed out."""
        return [
            np.empty((self.num_envs, *leaf.shape), leaf.dtype)
            for leaf in self._leaf_specs
        ]

    def _reset_one(
        self, buffers: list[np.ndarray], index: int, seed: int | None = None
    ) -> dict[str, Any]:
        """Resets a slot, checks and writes its observation, returns its info."""
        environment = self._environments[index]
        if seed is not None:
            environment.action_space.seed(seed)
        value, info = environment.reset(seed=seed)
        check_observation(self.spec.observation, value)
        self._write(buffers, index, value)
        return info

    def _write_array(self, buffers: list[np.ndarray], index: int, value: Any) -> None:
        """`_write_nest` for an observation that is one array, the usual case."""
        if type(value) is np.ndarray and value.shape == self._shapes[0]:
            buffers[0][index] = value
        else:
            self._write_nest(buffers, index, value)

    def _write_nest(self, buffers: list[np.ndarray], index: int, value: Any) -> None:
        """Copies one observation to its row of the leaves."""
        try:
            parts = [np.asarray(get(value)) for get in self._getters]
            if [part.shape for part in parts] != self._shapes:
                raise ValueError("a shape that assignment would have broadcast")
            for buffer, part in zip(buffers, parts, strict=True):
                buffer[index] = part
        except (LookupError, TypeError, ValueError):
            check_observation(self.spec.observation, value)  # raises a better one
            raise

    def _finish_episodes(
        self, ended: np.ndarray, reported: dict[int, Any]
    ) -> dict[str, np.ndarray]:
        """The `info` of a step: what environments report goes before our own sums."""
        if not ended.any() and not reported:
            return {}
        finished = ended & self._sums_episodes
        finished[list(reported)] = True
        if not finished.any():
            return {}
        info = self._totals.finish(finished)
        for index, episode in reported.items():
            info["episode_return"][index] = episode["r"]
            info["episode_length"][index] = episode["l"]
        return info

    def _failure(self, index: int, error: Exception) -> Exception:
        """What to raise from `error`, which environment `index` is to blame for."""
        where = f"environment {index} of {self.num_envs}"
        if isinstance(error, WrongObservation):
            return ValueError(f"{where}: {error}")
        return RuntimeError(f"{where}: {error!r}")
