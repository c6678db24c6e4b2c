"""Games of several players as the environments of one of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distrl.agents.opponents import Opponents, OpponentsFactory, RandomOpponents
from distrl.core.errors import ConfigError
from distrl.core.nests import flatten_as, map_nest, unflatten_as
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import EnvironmentSpec, Nest, describe, leaves
from distrl.environments.episode_totals import EpisodeTotals
from distrl.environments.observation_writer import observation_writer
from distrl.environments.spaces import space_spec
from distrl.environments.vector_environment import (
    Info,
    VectorEnvironment,
    VectorStep,
    slots_to_reset,
)
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.messages import Message
from distrl.worlds.outside_participant import OutsideParticipant
from distrl.worlds.world import Turns, World

#: From `participants`, a seat each, and the `index` that numbers the games, to a world
#: with `spaces`.
Game = Callable[..., World]
_MAX_SILENT = 1000  # games, or parleys of one, in a row in which nobody is asked


class WorldEnvironments(VectorEnvironment):
    """N games; a step is the learning seat's act, and all that the others answer.

    In each game one seat learns: they take turns from game to game, the seed of a slot
    says with which they begin. All others are played by `opponents`, asked once for all
    games that wait for one; in evaluations by `evaluation_opponents`. An observation is
    what the learning seat saw last, a reward what it was given since its last act. So
    for everybody else these are environments like any others: each row is a transition
    of the learning seat.
    """

    def __init__(
        self,
        game: Game,
        num_envs: int,
        seeds: EnvironmentSeeds | None = None,
        num_seats: int = 2,
        opponents: OpponentsFactory = RandomOpponents,
        evaluation_opponents: OpponentsFactory = RandomOpponents,
    ):
        """Makes the games.

        Raises ConfigError for seats that see or do different things, and for spaces
        that no nest of arrays can carry; ValueError for numbers below 1; and what
        `game` and the opponents raise.
        """
        if min(num_envs, num_seats) < 1:
            raise ValueError(
                f"num_envs {num_envs} and num_seats {num_seats} must be at least 1"
            )
        self.num_envs = num_envs
        seeds = seeds or EnvironmentSeeds(0, "actor", 0)
        self._games = [_Game(game, num_seats) for _ in range(num_envs)]
        self._restart([seeds.of(slot) for slot in range(num_envs)])
        try:
            self._describe(num_seats)
            judged = seeds.job == "evaluation"
            factory = evaluation_opponents if judged else opponents
            stream = np.random.SeedSequence(seeds.of(0), spawn_key=(1,))
            self._opponents: Opponents = factory(self.spec, num_envs, stream)
        except BaseException:
            self._close_games()
            raise
        self._totals = EpisodeTotals(num_envs)
        self._ended = np.zeros(num_envs, bool)
        self._write = observation_writer(self.spec.observation)
        self._actions: list[Any] = []

    def _describe(self, num_seats: int) -> None:
        world = self._games[0].world
        spaces = [world.spaces(seat) for seat in range(num_seats)]
        found = [EnvironmentSpec(*map(space_spec, of_seat)) for of_seat in spaces]
        for seat, spec in enumerate(found):
            if spec != found[0]:
                raise ConfigError(
                    f"{world.name}: seat {seat} has {describe(spec)}, seat 0 "
                    f"{describe(found[0])}: one policy cannot learn in both"
                )
        self.spec = found[0]
        self.observation_space, self.action_space = spaces[0]

    def load_parameters(self, version: int, parameters: np.ndarray) -> None:
        self._opponents.load(version, parameters)

    # The calls of a vector environment.

    def _reset(
        self,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        timeout: float | None,
    ) -> tuple[Nest, Info]:
        mask = slots_to_reset(options, self.num_envs)
        if seeds is not None:
            self._restart(seeds)
        slots = np.flatnonzero(mask).tolist()
        self._begin(slots)
        self._totals.reset(mask)
        self._ended &= ~mask
        return self._observation(), {}

    def _restart(self, seeds: Sequence[int | None]) -> None:
        for game, seed in zip(self._games, seeds, strict=True):
            if seed is not None:
                game.restart(seed)

    def _start_step(self, actions: Nest) -> None:
        flat = [np.asarray(leaf) for leaf in flatten_as(self.spec.action, actions)]
        for spec, array in zip(leaves(self.spec.action), flat, strict=True):
            if array.shape != (self.num_envs, *spec.shape):
                raise ValueError(
                    f"expected actions {[self.num_envs, *spec.shape]}, "
                    f"got {list(array.shape)}"
                )
        self._actions = [
            map_nest(lambda leaf, n=slot: leaf[n], actions)
            for slot in range(self.num_envs)
        ]

    def _finish_step(self, timeout: float | None) -> VectorStep:
        acting = np.flatnonzero(~self._ended).tolist()
        beginning = np.flatnonzero(self._ended).tolist()
        for slot in acting:
            self._games[slot].act(self._actions[slot])
        self._play_on(acting)
        self._begin(beginning)
        reward = np.array([game.seat.take_reward() for game in self._games], np.float64)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        for slot in acting:
            terminated[slot], truncated[slot] = self._games[slot].ends()
        self._totals.add(reward, self._ended)
        self._ended = terminated | truncated
        info = self._totals.finish(self._ended) if self._ended.any() else {}
        return VectorStep(
            self._observation(), reward.astype(np.float32), terminated, truncated, info
        )

    def _begin(self, slots: Sequence[int]) -> None:
        """Begins games, and plays them until their learning seats are to act. Those
        that end before it are not counted."""
        waiting = list(slots)
        for _ in range(_MAX_SILENT):
            for slot in waiting:
                self._opponents.begin(slot, self._games[slot].begin())
            self._play_on(waiting)
            waiting = [slot for slot in waiting if self._games[slot].over]
            if not waiting:
                return
        name = self._games[waiting[0]].world.name
        raise RuntimeError(
            f"{name}: nobody who learns was asked in {_MAX_SILENT} games"
        )

    def _play_on(self, slots: Sequence[int]) -> None:
        """Has the opponents act until the learning seats are to act, or games over."""
        while waiting := [slot for slot in slots if self._games[slot].waits_for_others]:
            shown = [self._games[slot].shown() for slot in waiting]
            for slot, action in zip(
                waiting, self._opponents.act(waiting, shown), strict=True
            ):
                self._games[slot].act(action)

    def _observation(self) -> Nest:
        """What the learning seats saw last, `[N, ...]`."""
        arrays = [leaf.zeros(self.num_envs) for leaf in leaves(self.spec.observation)]
        for slot, game in enumerate(self._games):
            self._write(arrays, slot, game.seat.observation["observation"])
        return unflatten_as(self.spec.observation, arrays)

    def _call(
        self, name: str, args: tuple, kwargs: dict[str, Any], attribute: bool = False
    ) -> list[Any]:
        values = [getattr(game.world, name) for game in self._games]
        if attribute:
            return values
        return [v(*args, **kwargs) if callable(v) else v for v in values]

    def _set_attr(self, name: str, values: Sequence[Any]) -> None:
        for game, value in zip(self._games, values, strict=True):
            setattr(game.world, name, value)

    def _close(self) -> None:
        try:
            self._opponents.close()
        finally:
            self._close_games()

    def _close_games(self) -> None:
        for game in self._games:
            game.world.shutdown()


class _Game:
    """A world, the seat that learns in its newest game, and who is to act."""

    def __init__(self, game: Game, num_seats: int):
        names = [f"seat {seat}" for seat in range(num_seats)]
        self._players = [OutsideParticipant(name) for name in names]
        self._index = ExampleIndex(None)
        self.world = game(participants=self._players, index=self._index)
        self._turns: Turns | None = None
        self.restart(0)

    def restart(self, seed: int) -> None:
        """The games from now on follow from this seed."""
        self._random = np.random.default_rng(seed)
        self._seats = itertools.cycle(range(len(self._players)))
        self.learning = 0  # the seat that does
        for _ in range(1 + seed % len(self._players)):
            self.learning = next(self._seats)

    @property
    def seat(self) -> OutsideParticipant:
        """The one that learns."""
        return self._players[self.learning]

    @property
    def over(self) -> bool:
        return self._turns is None

    @property
    def waits_for_others(self) -> bool:
        return self._turns is not None and self._acting != self.learning

    def shown(self) -> Message:
        """What the seat has seen that is to act."""
        return self._players[self._acting].observation

    def begin(self) -> int:
        """Gives up the game under way, and begins another; its seed."""
        self.world.reset()
        self.learning = next(self._seats)
        seed = int(self._random.integers(1 << 31))
        for player in self._players:
            player.reward = 0.0
        self._index.lend([seed])
        self._next_parley()
        return seed

    def act(self, action: Any) -> None:
        """The act of the seat that is to act; goes on to the next one that is."""
        if self._turns is None:
            raise RuntimeError("the game is over")
        try:
            self._acting = self._turns.send({"action": action})[-1]
        except StopIteration:
            self._next_parley()

    def _next_parley(self) -> None:
        self._turns = None
        for _ in range(_MAX_SILENT):
            turns = None if self.world.episode_done else self.world.play()
            if turns is None:
                return
            try:
                self._acting = next(turns)[-1]
                self._turns = turns
                return
            except StopIteration:
                continue
        raise RuntimeError(
            f"{self.world.name}: nobody was asked in {_MAX_SILENT} parleys"
        )

    def ends(self) -> tuple[bool, bool]:
        """Whether the game is over for the seat that learns: terminated, truncated."""
        if not self.over:
            return False, False
        truncated = bool(self.seat.observation.get("truncated", False))
        terminated = bool(self.seat.observation.get("terminated", False))
        return terminated or not truncated, truncated and not terminated
