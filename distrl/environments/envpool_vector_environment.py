"""The environments of envpool, which a C++ thread pool steps (pip install envpool)."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np

from distrl.core.errors import ConfigError
from distrl.core.nests import unflatten_as
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import EnvironmentSpec, Nest, leaves, named_leaves, validate
from distrl.environments.episode_totals import EpisodeTotals
from distrl.environments.spaces import leaf_getters, space_spec
from distrl.environments.vector_environment import (
    Info,
    VectorEnvironment,
    VectorStep,
)

MOST_SEEDS = 2**31 - 1
OURS = ("env_type", "num_envs", "batch_size", "max_num_players", "seed", "env_seed")


class EnvPoolVectorEnvironment(VectorEnvironment):
    """N environments of envpool, all of which step together.

    `step_async` starts a step and envpool's threads do it; there is no limit on the
    wait for them. Seeds are a slot's own. As the pool takes them only when it is made,
    a reset with seeds makes it anew.

    Of an Atari game (`"Pong-v5"`), `episode_return` and `episode_length` are those of
    the whole game under `episodic_life` and `reward_clip` too, and an episode begins
    with its first frame repeated behind the loss of a life as well, where envpool goes
    on with the old frames. It differs from `atari_environment` in resets alone: FIRE
    lasts one frame, and one behind the loss of a life plays as many no-ops as any other
    (their rewards do not count in `episode_return`, and a game that ends in them is
    reported by the row of that reset). To learn as that one does, set `episodic_life`
    and `reward_clip`.

    Of other environments, an episode that ends by itself in the very step of its time
    limit is truncated, not terminated: envpool does not tell.
    """

    def __init__(
        self,
        task_id: str,
        num_envs: int,
        seeds: EnvironmentSeeds | None = None,
        keep_infos: bool = False,
        **options: Any,
    ):
        """Makes the pool.

        Args:
          task_id: envpool's name, such as "Pong-v5".
          num_envs: at least 1.
          seeds: of the slots; None for random ones.
          keep_infos: whether to hand on what envpool puts into its infos.
          **options: for `envpool.make`, such as `num_threads`, `episodic_life`.

        Raises ConfigError when envpool is not installed and for an unknown task, option
        or space, ValueError for other bad arguments.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        _check_options(options)
        self.num_envs, self._keep_infos = num_envs, keep_infos
        self._task_id, self._options = task_id, options
        own = [None] * num_envs if seeds is None else map(seeds.of, range(num_envs))
        self._pool = self._make(list(own))
        self._describe()
        self._totals = EpisodeTotals(num_envs)
        self._slots = np.arange(num_envs, dtype=np.int32)

    def _make(self, seeds: Sequence[int | None]) -> Any:
        fresh = np.random.SeedSequence().generate_state(self.num_envs)
        numbers = [
            int(new if seed is None else seed) % MOST_SEEDS
            for seed, new in zip(seeds, fresh, strict=True)
        ]
        return _make_pool(
            self._task_id, num_envs=self.num_envs, seed=numbers, **self._options
        )

    def _describe(self) -> None:
        """Spec and spaces from the pool, stacks of frames included."""
        pool, config = self._pool, self._pool.config
        self.observation_space, self.action_space = (
            pool.observation_space,
            pool.action_space,
        )
        self.render_mode = self._options.get("render_mode")
        self.spec = EnvironmentSpec(
            space_spec(self.observation_space), space_spec(self.action_space)
        )
        self._is_atari = "zero_discount_on_life_loss" in config
        self._num_stacked = 1
        if self._is_atari and config["gray_scale"]:
            self._num_stacked = config["stack_num"]
            stack = dataclasses.replace(
                self.spec.observation, num_stacked=self._num_stacked
            )
            self.spec = self.spec._replace(observation=stack)
        self._leaf_specs = leaves(self.spec.observation)
        self._getters = leaf_getters(self.spec.observation)

    def _reset(
        self,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        timeout: float | None,
    ) -> tuple[Nest, Info]:
        if options:
            raise ValueError(f"envpool takes no options at a reset, got {options}")
        if seeds is not None:
            self._pool = self._make(seeds)
            self.action_space.seed(seeds[0])
        value, infos = self._pool.reset()
        self._totals.reset()
        self._ended = self._over = np.zeros(self.num_envs, bool)
        self._lives = self._all_lives = infos.get("lives")
        self._ages = np.zeros(self.num_envs, int)  # rows since the episode's first
        return self._observation(value), self._info(infos)

    def _start_step(self, actions: Nest) -> None:
        self._check_actions(actions)
        self._pool.send(actions, self._slots)

    def _finish_step(self, timeout: float | None) -> VectorStep:
        value, reward, terminated, truncated, infos = self._pool.recv()
        raw, over = reward, terminated | truncated
        finished = np.zeros(self.num_envs, bool)
        if self._is_atari:
            raw, game_over = infos["reward"], infos["terminated"].astype(bool)
            terminated, over = terminated | game_over, truncated | game_over
            finished = self._finished_in_reset(infos["lives"])
        self._totals.add(raw, self._ended)
        self._ages = np.where(self._ended, 0, self._ages + 1)
        self._ended, self._over = terminated | truncated, over
        info = self._info(infos)
        if (finished | over).any():
            info |= self._totals.finish(finished | over)
        reward = reward.astype(np.float32)
        return VectorStep(self._observation(value), reward, terminated, truncated, info)

    def _finished_in_reset(self, lives: np.ndarray) -> np.ndarray:
        """Bool [N]: games that were lost in the no-ops behind the loss of a life.

        Told by all lives being back.
        """
        goes_on = self._ended & ~self._over
        finished = goes_on & (lives > self._lives) & (lives == self._all_lives)
        self._lives = lives
        return finished

    def _check_actions(self, actions: Nest) -> None:
        """Raises ValueError also for numbers out of range, which envpool would use as
        an index."""
        validate(self.spec.action, actions, 1, "actions")
        pairs = zip(named_leaves(self.spec.action), leaves(actions), strict=True)
        for (name, leaf), array in pairs:
            if len(array) != self.num_envs:
                raise ValueError(f"expected {self.num_envs} actions, got {len(array)}")
            if array.dtype.kind not in "iu" or leaf.minimum is None:
                continue
            low, high = (
                np.reshape(bound, leaf.shape) if isinstance(bound, tuple) else bound
                for bound in (leaf.minimum, leaf.maximum)
            )
            if (array < low).any() or (array > high).any():
                raise ValueError(
                    f"actions {name} out of [{leaf.minimum}, {leaf.maximum}]: {array}"
                )

    def _observation(self, value: Any) -> Nest:
        """The pool's arrays, which it does not use again."""
        parts = [
            np.asarray(get(value), leaf.dtype)
            for get, leaf in zip(self._getters, self._leaf_specs, strict=True)
        ]
        last = self._num_stacked - 1
        for slot in np.flatnonzero(self._ages < last):
            first = last - self._ages[slot]
            parts[0][slot, :first] = parts[0][slot, first]
        return unflatten_as(self.spec.observation, parts)

    def _info(self, infos: dict[str, Any]) -> Info:
        if not self._keep_infos:
            return {}
        info: Info = {}
        for key, value in infos.items():
            if isinstance(value, np.ndarray) and key != "env_id":
                info[key], info[f"_{key}"] = value, np.ones(self.num_envs, bool)
        return info

    def _call(
        self, name: str, args: tuple, kwargs: dict[str, Any], attribute: bool = False
    ) -> list[Any]:
        """Frames by slot; of anything else the one pool's answer, for every slot."""
        if name == "render" and not attribute:
            return list(self._pool.render(env_ids=self._slots))
        value = getattr(self._pool, name)
        if not attribute and callable(value):
            value = value(*args, **kwargs)
        return [value] * self.num_envs

    def _set_attr(self, name: str, values: Sequence[Any]) -> None:
        raise NotImplementedError(f"{name!r} is one attribute of all slots here")

    def _close(self) -> None:
        self._pool = None  # ends its threads


def _check_options(options: dict[str, Any]) -> None:
    taken = sorted(set(options) & set(OURS))
    if taken:
        raise ValueError(f"not to be chosen as options of envpool: {taken}")
    if options.get("noop_max", 1) < 1:  # crashes the process at the first reset
        raise ValueError(f"noop_max must be at least 1, got {options['noop_max']}")


def _make_pool(task_id: str, **options: Any) -> Any:
    """Raises ConfigError where envpool is missing, and for a bad task or option."""
    try:
        import envpool
    except ImportError as error:
        raise ConfigError(
            "EnvPoolVectorEnvironment needs envpool: pip install 'envpool>=1.2' "
            f"({error})"
        ) from error
    known = envpool.list_all_envs()
    if task_id not in known:
        near = difflib.get_close_matches(task_id, known, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"envpool has no task {task_id!r}{hint}")
    try:
        return envpool.make(task_id, env_type="gymnasium", **options)
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"envpool cannot make {task_id!r}: {error}") from error
