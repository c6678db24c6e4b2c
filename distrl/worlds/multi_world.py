"""A mixture of tasks: each episode is played in one of several worlds."""

from __future__ import annotations

import copy
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant
from distrl.worlds.reducers import Metrics, Report, Sum, macro_average, merged
from distrl.worlds.world import Seat, Turns, World, shut_all

#: From a random stream, the worlds and the numbers of those that have something to
#: play, the number of the one to play next: a curriculum.
Choice = Callable[[np.random.Generator, Sequence[World], Sequence[int]], int]


class MultiWorld(World):
    """One of several worlds an episode; it changes between episodes only.

    Without `weights` and `choose` the worlds take turns, in their order. Worlds that
    have nothing more to play in the epoch are passed over; the epoch is over when all
    have not.

    A report has all metrics merged (the micro average), and those of each world under
    `<world>/<metric>`; `macro_average` counts every world the same. A participant that
    sits in several worlds is in the merged ones only.
    """

    def __init__(
        self,
        worlds: Sequence[World],
        weights: Sequence[float] | Literal["stochastic"] | None = None,
        choose: Choice | None = None,
        seed: int = 0,
        name: str = "multi",
    ):
        """How worlds are chosen at random, `seed` being that of the choice.

        Args:
          weights: the odds of each world in every choice among those that have
            something to play, or "stochastic": as many as it has episodes. What has a
            weight of 0 is played when nothing else is left.
          choose: a curriculum, in place of weights.

        Raises ValueError for no worlds, two of the same name, weights that are not one
        a world, negative, not finite or all zero, "stochastic" with a world of unknown
        size, and for weights beside `choose`.
        """
        names = Counter(world.name for world in worlds)
        if not names or max(names.values()) > 1:
            raise ValueError(f"expected worlds of different names, got {names}")
        if weights is not None and choose is not None:
            raise ValueError("weights, or a function that chooses: not both")
        self.worlds = list(worlds)
        self._choose = choose
        if weights is not None:
            self._choose = _Weighted(_checked_weights(weights, worlds))
        self._seed, self._row = seed, -1
        super().__init__(self.worlds[0].participants, name)

    def _clear(self) -> None:
        key = (self._row + 1,)
        self._random = np.random.default_rng(
            np.random.SeedSequence(self._seed, spawn_key=key)
        )
        self._newest = -1  # the number of the world that was played last

    @property
    def world(self) -> World:
        """The one that was played last, the first one before."""
        return self.worlds[max(self._newest, 0)]

    @property
    def participants(self) -> Sequence[Participant]:
        return self.world.participants

    @property
    def acts(self) -> Sequence[Message]:
        return self.world.acts

    @property
    def episode_done(self) -> bool:
        return self.world.episode_done

    def display(self) -> str:
        return f"[{self.world.name}]\n{self.world.display()}"

    def participant(self, seat: Seat) -> Participant:
        return self.worlds[seat[0]].participant(seat[1:])

    # Playing.

    @property
    def epoch_done(self) -> bool:
        return all(world.epoch_done for world in self.worlds)

    def play(self) -> Turns | None:
        self._check_open()
        if self._newest >= 0 and not self.world.episode_done:
            turns = self.world.play()
            if turns is not None:
                return self._numbered(turns)
        playable = [n for n, world in enumerate(self.worlds) if not world.epoch_done]
        while playable:
            number = self._next(playable)
            turns = self.worlds[number].play()
            if turns is not None:
                self._newest = number
                return self._numbered(turns)
            playable.remove(number)
        return None

    def _next(self, playable: Sequence[int]) -> int:
        if self._choose is None:
            count = len(self.worlds)
            return min(playable, key=lambda n: (n - self._newest - 1) % count)
        number = self._choose(self._random, self.worlds, playable)
        if number not in playable:
            raise ValueError(f"chose world {number!r}, expected one of {playable}")
        return number

    def _numbered(self, turns: Turns) -> Turns:
        """The turns of the newest world, with its number before each seat."""
        number = self._newest
        try:
            seat = next(turns)
            while True:
                seat = turns.send((yield (number, *seat)))
        except StopIteration:
            return

    # Counting.

    @property
    def steps(self) -> int:
        return sum(world.steps for world in self.worlds)

    @property
    def episodes(self) -> int:
        return sum(world.episodes for world in self.worlds)

    @property
    def num_episodes(self) -> int | None:
        sizes = [world.num_episodes for world in self.worlds]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def reports(self) -> dict[str, Metrics]:
        """Of each world, by its name."""
        return {world.name: world.report() for world in self.worlds}

    def macro_report(self) -> dict[str, float]:
        """Of each metric the mean over the worlds."""
        return macro_average(self.reports().values())

    def report(self) -> Metrics:
        leaves = [(path, world, world.sources()) for path, world in self.leaves()]
        worlds_of = Counter(one for _, _, own in leaves for one in own)
        found, seen = Metrics(self.counts()), set[int]()
        for path, world, own in leaves:
            names = set[str]()  # of this world's metrics
            for one, report in own.items():
                for name, reducer in report.items():
                    if one in seen or name in names or not world.shows(name):
                        continue
                    found.add(name, reducer)
                    if worlds_of[one] == 1:
                        found[f"{path}/{name}"] = reducer
                names |= report.keys()
            seen |= own.keys()
        return found

    def leaves(self) -> Iterator[tuple[str, World]]:
        """The worlds, and instead of a mixture its own, by `<mixture>/<world>`."""
        for world in self.worlds:
            if isinstance(world, MultiWorld):
                for path, leaf in world.leaves():
                    yield f"{world.name}/{path}", leaf
            else:
                yield world.name, world

    def counts(self) -> Report:
        own = [world.counts() for world in self.worlds]
        named = {
            f"{world.name}/{name}": reducer
            for world, counts in zip(self.worlds, own, strict=True)
            for name, reducer in counts.items()
        }
        return merged([{"episodes": Sum(0), "steps": Sum(0)}, *own]) | named

    def indices(self) -> Mapping[str, ExampleIndex]:
        return {
            f"{world.name}/{name}": index
            for world in self.worlds
            for name, index in world.indices().items()
        }

    # The order of its life.

    def share(self, row: int) -> MultiWorld:
        shared = copy.copy(self)
        shared.worlds = [world.share(row) for world in self.worlds]
        shared._row = row
        shared._clear()
        return shared

    def reset(self) -> None:
        self._check_open()
        for world in self.worlds:
            world.reset()
        self._clear()

    def reset_metrics(self) -> None:
        self._check_open()
        for world in self.worlds:
            world.reset_metrics()

    def save(self, directory: pathlib.Path) -> None:
        """Each world's participants write into a directory of its name."""
        self._check_open()
        for world in self.worlds:
            world.save(directory / world.name)

    def shutdown(self) -> None:
        if not self._closed:
            self._closed = True
            shut_all([world.shutdown for world in self.worlds])


class _Weighted:
    """Chooses by weights among those that have something to play."""

    def __init__(self, weights: np.ndarray):
        self._weights = weights

    def __call__(
        self,
        random: np.random.Generator,
        worlds: Sequence[World],
        playable: Sequence[int],
    ) -> int:
        weights = self._weights[list(playable)]
        if not weights.any():  # those that are left were given no weight
            weights = np.ones_like(weights)
        return playable[int(random.choice(len(playable), p=weights / weights.sum()))]


def _checked_weights(
    weights: Sequence[float] | Literal["stochastic"], worlds: Sequence[World]
) -> np.ndarray:
    if isinstance(weights, str):
        if weights != "stochastic":
            raise ValueError(f"weights: numbers or 'stochastic', got {weights!r}")
        unknown = [world.name for world in worlds if world.num_episodes is None]
        if unknown:
            raise ValueError(f"weights: nobody knows how many episodes {unknown} have")
        weights = [float(world.num_episodes or 0) for world in worlds]
    array = np.asarray(weights, np.float64)
    usable = np.isfinite(array).all() and (array >= 0).all() and array.any()
    if array.shape != (len(worlds),) or not usable:
        raise ValueError(
            f"weights: expected {len(worlds)} numbers of at least 0, one above it, "
            f"got {weights}"
        )
    return array
