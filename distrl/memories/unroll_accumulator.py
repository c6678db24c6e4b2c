"""Steps in, unrolls out; at the actor."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from distrl.core.nests import flatten_as, map_nest
from distrl.core.specs import Nest, leaves, named_leaves
from distrl.core.trajectories import Trajectories


class UnrollAccumulator:
    """Cuts the steps of N streams into unrolls of T steps that overlap by one row.

        finished = accumulator.begin(
            observation, acted.raw_action, parameters, version, state, slots
        )
        states.keep(acted.core_state, slots)   # not before: `state` may be a view
        if finished is not None:
            trajectories, env_steps = finished
        ...
        env_steps = accumulator.end(step.reward, step.terminated, step.truncated, slots)

    Every T steps N unrolls are complete, as soon as all streams have begun the step
    behind them: its observation is their row T and row 0 of the next ones. Rows follow
    the NEXT_STEP layout (`core.records`). Observations are copied once into each unroll
    that holds them, and arrays that were handed on are never written again. What is
    left when a run ends is in `pending_env_steps`.

    The streams may be stepped in groups, always by the same `slots`, slices `[a, b)`
    that share out the N streams. A group must stay less than an unroll ahead of others.
    Used by one thread at a time.
    """

    def __init__(self, spec: Trajectories, num_streams: int):
        """`spec` as of `trajectories_spec`, which has T. Raises ValueError unless both
        are at least 1."""
        self.num_steps: int = spec.reward.shape[0]
        if num_streams < 1 or self.num_steps < 1:
            raise ValueError(
                f"num_streams {num_streams} and num_steps {self.num_steps} must be at "
                "least 1"
            )
        self._spec, self._num_streams = spec, num_streams
        self._groups: dict[tuple[int, int], _Group] = {}
        self._open = deque([_Unrolls(spec, num_streams)])  # one or two, oldest first

    @property
    def pending_env_steps(self) -> int:
        """Environment steps whose unrolls have not been handed on."""
        return sum(unrolls.env_steps for unrolls in self._open)

    def begin(
        self,
        observation: Nest,
        raw_action: Nest,
        behaviour: np.ndarray,
        version: int | np.ndarray,
        core_state: Nest = (),
        slots: slice = slice(None),
    ) -> tuple[Trajectories, int] | None:
        """Adds what a step knows before it is taken, copied.

        Leaves are `[n, ...]` for the n streams of `slots`: the observations that are
        acted on, what was drawn, the parameters of the distribution (`[n, P]`), and the
        states of a recurrent core before the step, which are looked at only where an
        unroll begins. `version` is that of the parameters acted by, int64 `[n]` or one.

        Returns the N unrolls that this observation completes, with the number of
        environment steps in them (rows under `losses.returns.step_mask`), or None.
        Raises ValueError for another dtype or shape, for streams that wait for `end`,
        that are a whole unroll ahead, or that were in another group before.
        """
        group = self._group(slots)
        if group.stepping:
            raise ValueError(f"{group}: begin() before the end() of the last step")
        finished = None
        if group.row == self.num_steps:
            finished = self._close(group, observation)
        unrolls, row = self._open[group.ahead], group.row
        unrolls.begun.fill(
            (group.slots, row),
            observation=observation,
            raw_action=raw_action,
            behaviour=behaviour,
        )
        unrolls.record.version[group.slots, row] = version
        if row == 0:
            unrolls.core_state.fill((group.slots,), core_state=core_state)
            unrolls.record.first_is_last[group.slots] = group.is_last
        group.stepping = True
        return finished

    def end(
        self,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        slots: slice = slice(None),
    ) -> int:
        """Adds what the step returned, each `[n]`; the environment steps in it.

        Raises ValueError for another dtype or shape, and without a `begin`.
        """
        group = self._group(slots)
        if not group.stepping:
            raise ValueError(f"{group}: end() of a step without begin()")
        unrolls, row = self._open[group.ahead], group.row
        unrolls.ended.fill(
            (group.slots, row),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
        )
        env_steps = group.size - int(np.count_nonzero(group.is_last))
        unrolls.env_steps += env_steps
        # What the step from the last observation of an episode says ends nothing.
        group.is_last = np.logical_or(terminated, truncated) & ~group.is_last
        group.row, group.stepping = row + 1, False
        return env_steps

    def _close(
        self, group: _Group, observation: Nest
    ) -> tuple[Trajectories, int] | None:
        """Fills row T of a group and moves it on to the next unrolls."""
        if group.ahead:
            raise ValueError(
                f"{group} would begin a third unroll before all {self._num_streams} "
                "streams have ended the first"
            )
        oldest = self._open[0]
        oldest.observation.fill((group.slots, group.row), observation=observation)
        oldest.missing -= group.size
        group.ahead, group.row = 1, 0
        if len(self._open) == 1:
            self._open.append(_Unrolls(self._spec, self._num_streams))
        if oldest.missing:
            return None
        self._open.popleft()
        for each in self._groups.values():
            each.ahead = 0
        return oldest.record, oldest.env_steps

    def _group(self, slots: slice) -> _Group:
        start, stop, step = slots.indices(self._num_streams)
        group = self._groups.get((start, stop))
        if group is None or step != 1:
            group = self._new_group(start, stop, step)
        return group

    def _new_group(self, start: int, stop: int, step: int) -> _Group:
        new = _Group(start, stop)
        if step != 1 or new.size < 1:
            raise ValueError(f"slots {start}:{stop}:{step} are no group of streams")
        for other_start, other_stop in self._groups:
            if start < other_stop and other_start < stop:
                raise ValueError(
                    f"{new}: streams of {_Group(other_start, other_stop)} among them"
                )
        self._groups[start, stop] = new
        return new


class _Group:
    """Where some streams are."""

    def __init__(self, start: int, stop: int):
        self.slots, self.size = slice(start, stop), stop - start
        self.row = 0  # the next one to begin, or the one that `stepping` has begun
        self.ahead = 0  # 1 in the unrolls behind the oldest open ones
        self.stepping = False
        self.is_last = np.zeros(max(0, self.size), bool)  # row holds an episode's last

    def __str__(self) -> str:
        return f"slots {self.slots.start}:{self.slots.stop}"


class _Unrolls:
    """N unrolls that are being filled."""

    def __init__(self, spec: Trajectories, num_streams: int):
        # Not zeros: every element is written before they are handed on.
        record = map_nest(
            lambda leaf: np.empty((num_streams, *leaf.shape), leaf.dtype), spec
        )
        self.record: Trajectories = record
        self.missing = num_streams  # streams without row T
        self.env_steps = 0
        self.observation = _Fields(spec, record, ("observation",))
        self.begun = _Fields(spec, record, ("observation", "raw_action", "behaviour"))
        self.ended = _Fields(spec, record, ("reward", "terminated", "truncated"))
        self.core_state = _Fields(spec, record, ("core_state",))


class _Fields:
    """Some fields of a record, filled together: structures are slow to look at."""

    def __init__(self, spec: Trajectories, record: Trajectories, names: Sequence[str]):
        self._spec = {name: getattr(spec, name) for name in names}
        self._buffers = leaves({name: getattr(record, name) for name in names})

    def fill(self, where: tuple[slice | int, ...], **values: Nest) -> None:
        """Copies the values `[n, ...]` of all fields to these streams, and this row."""
        flat = flatten_as(self._spec, values)
        for index, (buffer, value) in enumerate(zip(self._buffers, flat, strict=True)):
            target, value = buffer[where], np.asarray(value)
            if value.shape != target.shape or value.dtype != target.dtype:
                name, _ = named_leaves(self._spec)[index]
                raise ValueError(
                    f"{name}: expected {target.dtype}{list(target.shape)}, got "
                    f"{value.dtype}{list(value.shape)}"
                )
            target[...] = value
