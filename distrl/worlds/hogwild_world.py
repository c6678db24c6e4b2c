"""Copies of a world in worker processes, each at its own pace, with exact counts."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from absl import logging

from distrl.core.child_process import (
    ChildLimits,
    ChildProcess,
    close_all,
    wait_for_news,
)
from distrl.core.threads import Deadline
from distrl.worlds.errors import WorkerError
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.example_pools import ExamplePools
from distrl.worlds.hogwild_worker import Described, HogwildWorker, Place, Played
from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant
from distrl.worlds.reducers import Metrics, Report, Sum, merged
from distrl.worlds.world import Turns, World

_LOOK_SECS = 0.2  # between two looks at the workers, at most
_NOTHING: Report = {"episodes": Sum(0), "steps": Sum(0)}


class HogwildWorld(World):
    """W worker processes play a world (or a batch of it) without waiting for another.

        with HogwildWorld(make_world, num_workers=4, batch_size=8) as world:
            while world.parley():
                pass
            print(values(world.report()))

    `parley` hands some parleys to a worker and does not wait for them; `drain` does,
    and so does everything that asks for a result. The examples of an epoch are handed
    out here: each is lent to one worker, which gives back what it did not begin. So
    every example is played once, for any number of workers and rows. What is reported
    is the sum of the workers' answers.

    When a worker dies, or its world raises an error, WorkerError is raised and all
    workers are ended, unless there are restarts left: then another takes its place,
    while the rest wait, and what the lost one had not reported is played once more, by
    any worker. An example that two workers have failed with is given up: see `lost`.
    The steps of an episode that was begun and lost were taken, and are counted.

    A worker that does not answer raises TimeoutError. That, or an interrupt, changes
    nothing: any call may be repeated. Workers end by themselves when this process does.
    """

    def __init__(
        self,
        make_world: Callable[[int], World],
        num_workers: int,
        batch_size: int = 1,
        parleys_per_request: int = 1,
        max_restarts: int = 0,
        limits: ChildLimits = ChildLimits(),
    ):
        """Starts the workers and waits until each has made its world.

        Args:
          make_world: is shipped by cloudpickle; called in each worker with its number.
          batch_size: rows of a BatchWorld in each worker; 1 for none.
          parleys_per_request: how many a worker plays before it answers. More cost
            less, and find the end of an epoch later.
          max_restarts: of all workers together.
          limits: how long to wait for the worlds, for one answer, for the end.

        Raises ValueError for numbers out of range, and a world that has epochs and no
        index that its episodes come from; TypeError for what makes no worlds,
        WorkerError for a world that cannot be made.
        """
        if not callable(make_world):
            raise TypeError(f"make_world: expected a function, got {make_world!r}")
        _check("num_workers", num_workers, 1)
        _check("batch_size", batch_size, 1)
        _check("parleys_per_request", parleys_per_request, 1)
        _check("max_restarts", max_restarts, 0)
        self._make_world, self._batch_size = make_world, batch_size
        self._parleys, self._restarts_left = parleys_per_request, max_restarts
        self._limits = limits
        self.name, self._closed, self.restarts = "hogwild", False, 0
        self._shown = None  # workers leave out what is not
        self._places = [Place(n, self._child(n)) for n in range(num_workers)]
        try:
            for place in self._places:
                place.child.start()
            described = [place.ready() for place in self._places]
            _check_indices(described[0])
        except BaseException:
            self.shutdown()
            raise
        self.name, self._num_episodes = described[0].name, described[0].num_episodes
        self._pools = ExamplePools(described[0].indices)
        self._begin(anew=False)

    def _child(self, number: int) -> ChildProcess:
        factory = partial(HogwildWorker, self._make_world, number, self._batch_size)
        return ChildProcess(factory, f"worker {number}", limits=self._limits)

    def _begin(self, anew: bool) -> None:
        self._pools.reset()
        for place in self._places:
            place.begin(place.child, self._endless, anew)
        self._report, self._counts = merged([_NOTHING]), merged([_NOTHING])

    @property
    def _endless(self) -> bool:
        """Whether workers need no examples to begin an episode."""
        return not self._pools.indices

    # Playing.

    def parley(self) -> bool:
        """Gives a worker something to play, once one is free; False when the epoch is
        over. Raises ClosedError behind a shutdown, WorkerError, and TimeoutError for
        workers of whom none answers."""
        self._check_open()
        limit = Deadline(self._limits.call_secs)
        while True:
            self._take_answers()
            place = self._next_place()
            if place is not None:
                self._ask(place)
                return True
            if not self._asked():
                return False
            self._wait(limit, "parley")

    def drain(self, timeout: float | None = None) -> None:
        """Waits until everything that was handed out has been played, at most `timeout`
        s (default: `call_secs`). Raises as `parley` does."""
        self._check_open()
        limit = Deadline(self._limits.call_secs if timeout is None else timeout)
        while True:
            self._take_answers()
            if not self._asked():
                return
            self._wait(limit, "drain")

    def _next_place(self) -> Place | None:
        """That of the worker, among those with something to play, who was asked
        least."""
        more = self._pools.available
        able = [place for place in self._places if place.may_play(more)]
        return min(able, key=lambda place: place.requests, default=None)

    def _ask(self, place: Place) -> None:
        at_once = self._batch_size * self._parleys
        lent = self._pools.lend(place.held, at_once, len(self._places))
        place.ask(lent, self._parleys)

    def _asked(self) -> list[Place]:
        return [place for place in self._places if place.promise is not None]

    def _wait(self, limit: Deadline, what: str) -> None:
        children = [place.child for place in self._asked()]
        seconds = min(_LOOK_SECS, limit.remaining)
        if not wait_for_news(children, seconds) and limit.passed:
            names = [child.name for child in children]
            raise TimeoutError(f"{what}: no answer from {names} within the limit")

    def _take_answers(self) -> None:
        for place in self._asked():
            if place.promise is None or not place.promise.done:
                continue
            outcome = place.promise.outcome()
            if outcome.error is not None:
                self._replace(place, outcome.error)
                continue
            played: Played = outcome.value
            place.take(played)
            self._pools.settle(played.unused, played.finished)
            self._report = merged([self._report, played.report])
            self._counts = merged([self._counts, played.counts])

    def _replace(self, place: Place, error: Exception) -> None:
        """Puts another worker there. Raises WorkerError when none is allowed; the
        workers are ended then, and whenever this does not come to its end."""
        try:
            self._pools.fail(place.unreported())
            failure: WorkerError | None = place.failure(error)
            while failure is not None:
                failure = self._restart(place, failure)
        except BaseException:
            self.shutdown()
            raise
        for other in self._places:
            other.stuck = False  # there may be examples again

    def _restart(self, place: Place, failure: WorkerError) -> WorkerError | None:
        """What is wrong with the new one, too."""
        if not self._restarts_left:
            raise failure
        logging.warning("%s; another takes its place", failure)
        self._restarts_left -= 1
        self.restarts += 1
        place.child.close()
        place.begin(self._child(place.number), self._endless)
        place.child.start()
        try:
            place.ready()
        except WorkerError as again:
            return again
        return None

    # Counting.

    @property
    def epoch_done(self) -> bool:
        self.drain()
        return self._next_place() is None

    @property
    def pids(self) -> list[int | None]:
        """The workers' process ids."""
        return [place.child.pid for place in self._places]

    @property
    def lost(self) -> dict[str, list[int]]:
        """Examples that were given up in this epoch, by index."""
        return self._pools.lost

    def report(self) -> Metrics:
        """All metrics, of what was handed out before; behind a shutdown, of what was
        reported before it."""
        if not self._closed:
            self.drain()
        return Metrics(self._report)

    def counts(self) -> Report:
        self.report()
        return dict(self._counts)

    @property
    def steps(self) -> int:
        return int(self.counts()["steps"].value)

    @property
    def episodes(self) -> int:
        return int(self.counts()["episodes"].value)

    @property
    def num_episodes(self) -> int | None:
        return self._num_episodes

    def indices(self) -> Mapping[str, ExampleIndex]:
        return self._pools.indices

    # What lives in the workers, and cannot be had here.

    @property
    def participants(self) -> Sequence[Participant]:
        raise NotImplementedError("the participants of a HogwildWorld are elsewhere")

    @property
    def acts(self) -> Sequence[Message]:
        raise NotImplementedError("the acts of a HogwildWorld are elsewhere")

    @property
    def episode_done(self) -> bool:
        raise NotImplementedError("the workers of a HogwildWorld have many episodes")

    def display(self) -> str:
        raise NotImplementedError("a HogwildWorld has nothing to display")

    def play(self) -> Turns | None:
        raise TypeError("a HogwildWorld cannot be part of another world")

    def share(self, row: int) -> World:
        raise TypeError("a HogwildWorld cannot be the row of a batch")

    # The order of its life.

    def reset(self) -> None:
        """Ends what is being played, and begins an epoch anew; a worker resets its
        world when it is asked to play again. Raises as `drain` does."""
        self.drain()
        self._begin(anew=True)

    def reset_metrics(self) -> None:
        self.drain()
        self._report = Metrics(self._counts)

    def save(self, directory: pathlib.Path) -> None:
        """The first worker's participants write what they have learnt. Raises what they
        raise, and as `drain` does."""
        self.drain()
        self._places[0].child.call("save", directory).result()

    def shutdown(self) -> None:
        """Ends the workers; nothing more is played. May be called again."""
        self._closed = True
        close_all([place.child for place in self._places])


def _check_indices(described: Described) -> None:
    if described.num_episodes is not None and not described.indices:
        raise ValueError(
            f"{described.name!r} has epochs of {described.num_episodes} episodes, and "
            "nobody in it has an index (see Participant.indices): each worker would "
            "play all of them"
        )


def _check(what: str, number: int, least: int) -> None:
    if number < least:
        raise ValueError(f"{what} must be at least {least}, got {number}")
