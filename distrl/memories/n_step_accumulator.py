"""Steps in, n-step transitions and frames out; at the actor."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distrl.core.nests import flatten_as, map_nest
from distrl.core.records import Experience, frame_spec, newest_frames
from distrl.core.specs import EnvironmentSpec, Nest, leaves, validate

SMALLEST_PRIORITY = 1e-6


class NStepAccumulator:
    """Cuts the steps of N streams into blocks of experience.

        R_t = Σ_{j<m} γ^j r_{t+j+1}
        discount_t = γ^m · (1 − terminated within these m steps)
        priority_t = |R_t + discount_t · value_max_{t+m} − value_taken_t|, at least 1e-6

    with m = `n_step`, or fewer where the episode or the run ends earlier. A truncated
    episode is bootstrapped from its true last observation; what is terminated and
    truncated is terminated. Every environment step becomes the start of exactly one
    transition, and every frame is shipped exactly once.

        rows = accumulator.add(observation, action, q_taken, q_max, *step_returned)
        if accumulator.ready:
            experience, rows = accumulator.take()
        ...
        experience, rows = accumulator.flush(observation, q_max)  # when the run ends

    Rows follow the NEXT_STEP layout (`core.records`): the row after the end of an
    episode holds its last observation, and its action and reward are ignored. Times
    count the rows from 0.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_streams: int,
        n_step: int,
        discount: float,
        block_length: int,
    ):
        if min(num_streams, n_step, block_length) < 1:
            raise ValueError(
                f"num_streams {num_streams}, n_step {n_step} and block_length "
                f"{block_length} must be at least 1"
            )
        if not 0 <= discount <= 1:
            raise ValueError(f"discount must be in [0, 1], got {discount}")
        self._spec = spec
        self._num_streams = num_streams
        self._n_step = n_step
        self._discount = discount
        self._block_length = block_length
        # One row more than can be pending, for the observation at the run's end.
        self._rows = _Rows.zeros(spec, n_step + block_length + 1, num_streams)
        self._frames = map_nest(
            lambda leaf: leaf.zeros(block_length + 1, num_streams),
            frame_spec(spec.observation),
        )
        self._time = 0  # of the first row in the buffer
        self._count = 0  # rows in the buffer
        self._shipped = 0  # rows in the buffer whose frames have been shipped
        self._flushed = False

    @property
    def ready(self) -> bool:
        """Whether a block is complete."""
        return self._count - self._shipped >= self._block_length

    def add(
        self,
        observation: Nest,
        action: Nest,
        value_taken: np.ndarray,
        value_max: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> int:
        """Adds one row of all streams, copied; returns the environment steps in it.

        `observation` `[N, ...]` is what was acted on, `value_taken` and `value_max`
        `[N]` are what it was worth; the rest is what the step returned. Raises
        ValueError for a wrong shape, after `flush`, and when a complete block has not
        been taken.
        """
        if self.ready:
            raise ValueError(f"{self._block_length} rows are ready: take() them first")
        row, rows = self._count, self._rows
        last = self._add_observation(observation, value_max)
        for buffer, array in zip(
            leaves(rows.action), flatten_as(self._spec.action, action), strict=True
        ):
            _copy(buffer[row], array, "action")
        _copy(rows.value_taken[row], value_taken, "value_taken")
        _copy(rows.reward[row], reward, "reward")
        _copy(rows.terminated[row], terminated, "terminated")
        _copy(rows.done[row], truncated, "truncated")
        # What the reset step says belongs to no episode.
        rows.terminated[row] &= ~last
        rows.done[row] &= ~last
        rows.done[row] |= rows.terminated[row]
        self._count += 1
        return self._num_streams - int(np.count_nonzero(last))

    def take(self) -> tuple[Experience, int]:
        """The frames not yet shipped and all transitions whose n steps are over.

        Also returns the number of transitions.
        """
        return self._ship(max(0, self._count - self._n_step), self._count - 1)

    def flush(self, observation: Nest, value_max: np.ndarray) -> tuple[Experience, int]:
        """All that is left, when the run ends; nothing can be added after it.

        `observation` is what the last step returned, `value_max` what it is worth.
        Transitions whose n steps are not over end there.
        """
        self._add_observation(observation, value_max)
        self._rows.last[self._count] = True  # nobody acts on it
        self._count += 1
        self._flushed = True
        return self._ship(self._count, self._count - 1)

    def _add_observation(self, observation: Nest, value_max: np.ndarray) -> np.ndarray:
        """Fills what a row knows before its step; returns where it ends an episode."""
        if self._flushed:
            raise ValueError("the accumulator has been flushed")
        row, rows = self._count, self._rows
        if self._time + row == 0:
            validate(self._spec.observation, observation, 1, "observation")
        newest = newest_frames(self._spec.observation, observation)
        for buffer, frame in zip(leaves(self._frames), leaves(newest), strict=True):
            _copy(buffer[row - self._shipped], frame, "observation")
        _copy(rows.value_max[row], value_max, "value_max")
        if row == 0:  # the first of all: later, some rows are always pending
            rows.last[row] = False
            rows.episode_start[row] = self._time
        else:
            rows.last[row] = rows.done[row - 1]
            rows.episode_start[row] = np.where(
                rows.last[row - 1], self._time + row, rows.episode_start[row - 1]
            )
        return rows.last[row]

    def _ship(self, num_starts: int, newest: int) -> tuple[Experience, int]:
        """Ships the frames up to now and the transitions from rows [0, num_starts)."""
        rows = self._rows
        reward, discount, steps = self._windows(num_starts, newest)
        start, stream = np.nonzero(~rows.last[:num_starts])
        reward, discount = reward[start, stream], discount[start, stream]
        end = start + steps[start, stream]
        first = self._time + self._shipped
        num_frames = self._count - self._shipped
        experience = Experience(
            blocks=np.array([[first, num_frames, self._num_streams, len(start)]]),
            frames=map_nest(lambda array: _joined(array[:num_frames]), self._frames),
            stream=stream.astype(np.int32),
            episode_start=rows.episode_start[start, stream],
            time_tm1=self._time + start,
            time_t=self._time + end,
            action=map_nest(lambda array: array[start, stream], rows.action),
            reward=reward.astype(np.float32),
            discount=discount.astype(np.float32),
            priority=_priorities(
                reward
                + discount * rows.value_max[end, stream]
                - rows.value_taken[start, stream]
            ),
        )
        self._drop(num_starts)
        return experience, len(start)

    def _windows(
        self, num_starts: int, newest: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """R, discount and m `[S, N]` of every start, from rows up to `newest`."""
        rows = self._rows
        running = ~rows.last[:num_starts]
        terminated = np.zeros_like(running)
        steps = np.zeros(running.shape, np.int64)
        returns = np.zeros(running.shape)
        for j in range(self._n_step):
            known = min(num_starts, newest - j)  # starts whose step j was taken
            if known <= 0:
                break
            on, step = running[:known], slice(j, j + known)
            returns[:known] += np.where(on, self._discount**j * rows.reward[step], 0)
            steps[:known] += on
            terminated[:known] |= on & rows.terminated[step]
            on &= ~rows.done[step]
        return returns, self._discount**steps * ~terminated, steps

    def _drop(self, num_rows: int) -> None:
        """Forgets rows that have started their transition."""
        kept = self._count - num_rows
        for array in leaves(self._rows):
            array[:kept] = array[num_rows : self._count]
        self._time += num_rows
        self._count = kept
        self._shipped = kept


class _Rows(NamedTuple):
    """Buffers `[L, N, ...]`."""

    action: Any
    value_taken: np.ndarray
    value_max: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    done: np.ndarray  # terminated or truncated
    last: np.ndarray  # the row holds an episode's last observation
    episode_start: np.ndarray

    @classmethod
    def zeros(cls, spec: EnvironmentSpec, length: int, num_streams: int) -> _Rows:
        def array(dtype: type) -> np.ndarray:
            return np.zeros((length, num_streams), dtype)

        return cls(
            action=map_nest(lambda leaf: leaf.zeros(length, num_streams), spec.action),
            value_taken=array(np.float32),
            value_max=array(np.float32),
            reward=array(np.float32),
            terminated=array(np.bool_),
            done=array(np.bool_),
            last=array(np.bool_),
            episode_start=array(np.int64),
        )


def _copy(buffer: np.ndarray, array: Any, what: str) -> None:
    array = np.asarray(array)
    if array.shape != buffer.shape:
        raise ValueError(f"{what}: expected shape {buffer.shape}, got {array.shape}")
    buffer[...] = array


def _joined(array: np.ndarray) -> np.ndarray:
    """A copy of `[T, N, ...]` as `[T·N, ...]`."""
    return array.reshape(-1, *array.shape[2:]).copy()


def _priorities(errors: np.ndarray) -> np.ndarray:
    """Raises ValueError when values or rewards were not finite."""
    if not np.isfinite(errors).all():
        bad = errors[~np.isfinite(errors)][0]
        raise ValueError(f"TD error {bad}: values and rewards must be finite")
    return np.maximum(np.abs(errors), SMALLEST_PRIORITY).astype(np.float32)
