"""The interface of all vector environments, and the order of its calls."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeeded,
)
from gymnasium.vector import AutoresetMode

from distrl.core.specs import EnvironmentSpec, Nest

Info = dict[str, Any]  # of all environments, in Gymnasium's vector layout


class VectorStep(NamedTuple):
    """What N environments did in one step: Gymnasium's five values."""

    observation: Nest  # [N, ...]
    reward: np.ndarray  # float32 [N]
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N], only terminated zeroes the discount
    info: Info


class VectorEnvironment(abc.ABC):
    """N environments that step together, resetting by themselves (NEXT_STEP).

        with SerialVectorEnvironment(factory, num_envs=32, seeds=seeds) as environment:
            observation, _ = environment.reset()
            resetting = np.zeros(environment.num_envs, bool)
            while not should_stop():
                step = environment.step(policy(observation))
                record(observation, step, masked=resetting)
                observation = step.observation
                resetting = step.terminated | step.truncated

    The observation of a step in which an episode ended is the last one of that episode.
    The next step ignores that slot's action: it shows the first observation of the next
    episode with reward 0 and both flags False. (Back-ends made with another
    `autoreset_mode` behave as Gymnasium says of it: SAME_STEP resets at once and has
    the last observations in `info["final_obs"]`; DISABLED waits for
    `reset(options={"reset_mask": bool [N]})`.)

    In steps in which real episodes ended, `info` has `episode_return` float64 [N], the
    undiscounted sum of the raw rewards, and `episode_length` int64 [N], both valid
    where `_episode_return` bool [N] is True. Loss of a life or clipped rewards do not
    show in them. In steps in which environments were made anew behind an error, `info`
    has `restarted` bool [N]: their last observation comes again, truncated (but not
    where it was the reset that failed, which is repeated). What else
    the environments put into their infos is there only if a back-end was made to keep
    it.

    `step_async` starts a step and `step_wait` takes its result, so that work can be
    done in between. Used by one thread at a time. Arrays that were returned are never
    written again (where a back-end offers otherwise, it says so).

    Raised by every call that comes at the wrong time: Gymnasium's
    ClosedEnvironmentError, ResetNeeded, AlreadyPendingCallError, NoAsyncCallError.
    """

    num_envs: int
    spec: EnvironmentSpec  # of one environment
    observation_space: gymnasium.Space  # of one environment
    action_space: gymnasium.Space
    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    render_mode: str | None = None

    _closed = False
    _was_reset = False
    _pending = False

    # What users call.

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> tuple[Nest, Info]:
        """First observations, `[N, ...]`, and infos.

        New random streams where seeds are given: one a slot, or one number, to which
        the slot's index is added. A step that is pending is waited for and dropped.
        With `options={"reset_mask": bool [N]}` the other slots stay as they are.
        Raises ValueError unless there is one seed an environment, and for a mask of
        another kind, and TimeoutError (`timeout` in seconds; None is the back-end's own
        limit).
        """
        self._check_open("reset")
        seeds = seeds_of_slots(seed, self.num_envs)
        everyone = slots_to_reset(options, self.num_envs).all()
        if not (everyone or self._was_reset):
            raise ResetNeeded("reset of some slots before the first reset of all")
        if self._pending:
            self.step_wait(timeout)
        result = self._reset(seeds, options, timeout)
        self._was_reset = True
        return result

    def step(self, actions: Nest) -> VectorStep:
        """Steps each environment; `actions` is a nest of `[N, ...]` arrays.

        Raises ValueError for actions that do not fit, before any environment has
        stepped; and what an environment raised, once all have stepped, with its index
        in `environment_index` and in the text of its cause. That environment is reset
        by the next step, the others go on.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Nest) -> None:
        """Starts a step. Raises ValueError for actions that do not fit."""
        self._check_open("step_async")
        if self._pending:
            raise AlreadyPendingCallError(
                "step_async() while a step is pending", "step"
            )
        if not self._was_reset:
            raise ResetNeeded("step before the first reset()")
        self._start_step(actions)
        self._pending = True

    def step_wait(self, timeout: float | None = None) -> VectorStep:
        """The step that `step_async` started. Raises TimeoutError, behind which the
        step is still pending, and what `step` raises."""
        self._check_open("step_wait")
        if not self._pending:
            raise NoAsyncCallError("step_wait() without step_async()", "step")
        try:
            step = self._finish_step(timeout)
        except BaseException as error:
            ours = not hasattr(error, "environment_index")
            self._pending = ours and isinstance(error, TimeoutError)
            raise
        self._pending = False
        return step

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """What the method of that name returns, or the attribute's value, by slot."""
        self._check_idle("call")
        return self._call(name, args, kwargs)

    def get_attr(self, name: str) -> list[Any]:
        """The attribute of each environment, or of the first wrapper that has it.
        Raises AttributeError."""
        self._check_idle("get_attr")
        return self._call(name, (), {}, attribute=True)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of each environment: a list or tuple with one value a slot,
        or one value for all. Raises ValueError for another number of them."""
        self._check_idle("set_attr")
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} values, got {len(values)}")
        self._set_attr(name, values)

    def render(self) -> np.ndarray:
        """A frame an environment, uint8 `[N, H, W, 3]`. Raises NotImplementedError
        unless they were made with `render_mode="rgb_array"`."""
        self._check_idle("render")
        if self.render_mode != "rgb_array":
            raise NotImplementedError(
                f"Only rgb_array rendering is supported, not {self.render_mode!r}"
            )
        return np.stack(self._call("render", (), {}))

    def child_cpu_secs(self) -> float:
        """CPU seconds that child processes have taken for this environment so far."""
        return 0.0

    def load_parameters(  # noqa: B027  most have nobody to tell
        self, version: int, parameters: np.ndarray
    ) -> None:
        """Tells of the newest parameters of whoever acts here, uint8 as they travel:
        some environments have players of their own who learn from them."""

    def close(self) -> None:
        """Frees what the environments hold, a pending step or not. May be called
        again."""
        if not self._closed:
            self._closed, self._pending = True, False
            self._close()

    def __enter__(self) -> VectorEnvironment:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    # What back-ends do. `_finish_step` may raise TimeoutError and be called again.

    @abc.abstractmethod
    def _reset(
        self,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        timeout: float | None,
    ) -> tuple[Nest, Info]: ...

    @abc.abstractmethod
    def _start_step(self, actions: Nest) -> None: ...

    @abc.abstractmethod
    def _finish_step(self, timeout: float | None) -> VectorStep: ...

    @abc.abstractmethod
    def _call(
        self, name: str, args: tuple, kwargs: dict[str, Any], attribute: bool = False
    ) -> list[Any]: ...

    @abc.abstractmethod
    def _set_attr(self, name: str, values: Sequence[Any]) -> None: ...

    @abc.abstractmethod
    def _close(self) -> None: ...

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise ClosedEnvironmentError(f"{what}() of an environment that was closed")

    def _check_idle(self, what: str) -> None:
        self._check_open(what)
        if self._pending:
            raise AlreadyPendingCallError(f"{what}() while a step is pending", "step")


def seeds_of_slots(
    seed: int | Sequence[int | None] | None, num_envs: int
) -> list[int | None] | None:
    """One seed a slot. Raises ValueError unless there is one an environment."""
    if seed is None:
        return None
    if isinstance(seed, int | np.integer):
        return [int(seed) + slot for slot in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"expected {num_envs} seeds, got {len(seed)}: {seed}")
    return [None if one is None else int(one) for one in seed]


def slots_to_reset(options: dict[str, Any] | None, num_envs: int) -> np.ndarray:
    """Which slots a reset with these options is for, bool [N]: those of the
    `reset_mask`, or all. Raises ValueError for a mask of another shape or dtype."""
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, bool)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != bool:
        raise ValueError(
            f"expected a reset_mask bool[{num_envs}], got {mask.dtype}"
            f"{list(mask.shape)}: {options['reset_mask']}"
        )
    return mask
