"""A worker of a HogwildWorld: what lives in its process, and its place in the pool."""

from __future__ import annotations

import os
import pathlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from distrl.core.child_process import ChildProcess, Promise
from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.errors import WorkerError
from distrl.worlds.example_index import ExampleIndex, IndexSettings
from distrl.worlds.example_pools import Numbers
from distrl.worlds.reducers import Metrics, Report, Sum
from distrl.worlds.world import World


class Described(NamedTuple):
    """What a worker says when it is ready."""

    pid: int
    name: str
    num_episodes: int | None
    indices: Mapping[str, IndexSettings]


class Played(NamedTuple):
    """What a worker says of a request: of this alone, so that answers add up."""

    parleys: int
    busy: bool  # it has episodes under way, or needs no examples to begin one
    unused: Numbers  # of what it was lent for this, all that it did not begin
    finished: Numbers
    report: Metrics  # with the counts
    counts: Report


class HogwildWorker:
    """Lives in the process. It plays what it is lent, and nothing else."""

    def __init__(self, make_world: Callable[[int], World], index: int, batch_size: int):
        world = make_world(index)
        if not isinstance(world, World):
            raise TypeError(f"make_world: expected a World, got {world!r}")
        self._world = world if batch_size == 1 else BatchWorld(world, batch_size)
        self._indices = _each_once(self._world.indices())
        self._settle()

    def describe(self) -> Described:
        settings = {name: index.settings for name, index in self._indices.items()}
        return Described(
            os.getpid(), self._world.name, self._world.num_episodes, settings
        )

    def play(self, anew: bool, lent: Numbers, parleys: int) -> Played:
        """Up to so many parleys, fewer when there is nothing left to play; behind a
        reset, if this is a new epoch."""
        if anew:
            self._world.reset()
        before = self._world.counts()
        for name, numbers in lent.items():
            self._indices[name].lend(numbers)
        done = 0
        while done < parleys and self._world.parley():
            done += 1
        unused, finished = self._settle()
        busy = done > 0 and not self._world.epoch_done
        counts = _difference(self._world.counts(), before)
        report = Metrics(self._world.report() | counts)
        self._world.reset_metrics()
        return Played(done, busy, unused, finished, report, counts)

    def _settle(self) -> tuple[Numbers, Numbers]:
        """What was lent and not begun, and what was finished."""
        given = {name: index.give_back() for name, index in self._indices.items()}
        unused = {name: numbers for name, (numbers, _) in given.items()}
        return unused, {name: numbers for name, (_, numbers) in given.items()}

    def save(self, directory: pathlib.Path) -> None:
        self._world.save(directory)

    def close(self) -> None:
        self._world.shutdown()


def _each_once(indices: Mapping[str, ExampleIndex]) -> dict[str, ExampleIndex]:
    """An index that has several names is lent from by its first."""
    seen: dict[int, str] = {}
    for name, index in indices.items():
        seen.setdefault(id(index), name)
    return {name: indices[name] for name in seen.values()}


def _difference(counts: Report, before: Report) -> Report:
    return {
        name: Sum(count.value - before[name].value) for name, count in counts.items()
    }


class Place:
    """A worker's place in the pool: who has it, and what became of its requests."""

    def __init__(self, number: int, child: ChildProcess, endless: bool = False):
        self.number = number
        self.begin(child, endless)

    def begin(self, child: ChildProcess, endless: bool, anew: bool = False) -> None:
        """With an epoch of which `child` has played nothing yet. `endless`: it needs no
        examples; `anew`: it has played in another epoch."""
        self.child = child
        self.promise: Promise | None = None  # of what it was asked last
        self.requests = 0
        self.busy = endless
        self.stuck = False  # it could play nothing with what it was lent
        self.held: dict[str, Counter[int]] = {}  # examples, begun and not finished
        self._lent: Numbers = {}  # with the promise
        self._anew = anew

    def ready(self) -> Described:
        """Waits until it has made its world. Raises WorkerError."""
        try:
            described: Described = self.child.wait_ready()
            return described
        except Exception as error:
            raise self.failure(error) from error

    def may_play(self, available: bool) -> bool:
        """Whether it is free, and has something to play or may be lent something."""
        free = self.promise is None
        return free and (self.busy or (available and not self.stuck))

    def ask(self, lent: Numbers, parleys: int) -> None:
        self.requests += 1
        self._lent = lent
        self.promise = self.child.call("play", self._anew, lent, parleys)
        self._anew = False

    def take(self, played: Played) -> None:
        """Its answer: it holds what it has begun."""
        self.held = {
            name: numbers
            - Counter(played.unused.get(name, ()))
            - Counter(played.finished.get(name, ()))
            for name, numbers in self.unreported().items()
        }
        self.busy, self.stuck = played.busy, not played.parleys
        self.promise, self._lent = None, {}

    def unreported(self) -> dict[str, Counter[int]]:
        """The examples that it has, or may have, begun and not finished."""
        return {
            name: self.held.get(name, Counter()) + Counter(self._lent.get(name, ()))
            for name in {*self.held, *self._lent}
        }

    def failure(self, error: Exception) -> WorkerError:
        """What is wrong with it, with the traceback of where it happened."""
        trace = f"\n{error.__cause__}" if error.__cause__ is not None else ""
        name = self.child.name
        failure = WorkerError(f"{name}: {type(error).__name__}: {error}{trace}")
        failure.__cause__ = error
        return failure
