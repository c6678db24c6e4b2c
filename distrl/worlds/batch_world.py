"""Copies of a world that are played together, with one batched act a seat."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant
from distrl.worlds.reducers import Metrics, Report, merged
from distrl.worlds.world import Seat, Turns, World, shut_all


class BatchWorld(World):
    """B copies of a world: a parley of it is a parley of each copy.

    When copies wait for the act of the same seat, and the original's participant there
    has `batch_act`, it is asked once for all of them; otherwise each copy's own acts.
    A copy that has nothing more to play is left out, so that everything is counted as
    it is, also in the last parleys of an epoch. The original is never played: it has
    the parameters, the metrics, and the sizes.
    """

    def __init__(self, world: World, batch_size: int):
        """Raises ValueError for no rows, TypeError for a world of rows already."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if isinstance(world, BatchWorld):
            raise TypeError("the rows of a BatchWorld cannot be BatchWorlds")
        self.world = world
        self.rows = [world.share(row) for row in range(batch_size)]
        super().__init__(world.participants, world.name)

    def _clear(self) -> None:
        """The rows have what there is."""

    @property
    def acts(self) -> Sequence[Any]:
        """Of each row, the newest act of each seat."""
        return [row.acts for row in self.rows]

    @property
    def episode_done(self) -> bool:
        raise NotImplementedError("each row has episodes of its own: see `rows`")

    @property
    def epoch_done(self) -> bool:
        return all(row.epoch_done for row in self.rows)

    def display(self) -> str:
        return "\n".join(row.display() for row in self.rows)

    # Playing.

    def play(self) -> Turns | None:
        raise TypeError("a BatchWorld cannot be part of another world")

    def parley(self) -> bool:
        self._check_open()
        playing: dict[int, Turns] = {}
        for number, row in enumerate(self.rows):
            turns = row.play()
            if turns is not None:
                playing[number] = turns
        if not playing:
            return False
        waiting: dict[int, Seat] = {}  # the rows whose parley goes on, and for whom
        for number, turns in playing.items():
            _advance(number, turns, waiting, None)
        while waiting:
            for seat in sorted(set(waiting.values())):
                rows = [number for number, wants in waiting.items() if wants == seat]
                acts = self._ask(seat, rows)
                for number, act in zip(rows, acts, strict=True):
                    _advance(number, playing[number], waiting, act)
        return True

    def _ask(self, seat: Seat, rows: Sequence[int]) -> list[Message]:
        """What the rows' participants in a seat do."""
        original = self.world.participant(seat)
        own: list[Participant] = [self.rows[row].participant(seat) for row in rows]
        batch_act = getattr(original, "batch_act", None)
        if batch_act is None:
            return [participant.act() for participant in own]
        messages: list[Message] = [{} for _ in self.rows]
        for row, participant in zip(rows, own, strict=True):
            messages[row] = participant.observation
        acts = batch_act(messages)
        if not isinstance(acts, Sequence) or len(acts) != len(messages):
            returned = len(acts) if isinstance(acts, Sequence) else acts
            raise RuntimeError(
                f"{original.id}: batch_act() was given {len(messages)} messages and "
                f"returned {returned} acts"
            )
        return [acts[row] for row in rows]

    # Counting.

    @property
    def steps(self) -> int:
        return sum(row.steps for row in self.rows)

    @property
    def episodes(self) -> int:
        return sum(row.episodes for row in self.rows)

    @property
    def num_episodes(self) -> int | None:
        return self.world.num_episodes

    def report(self) -> Metrics:
        return Metrics(self.world.report() | self.counts())

    def counts(self) -> Report:
        return merged(row.counts() for row in self.rows)

    def indices(self) -> Mapping[str, ExampleIndex]:
        return self.world.indices()

    # The order of its life.

    def share(self, row: int) -> World:
        raise TypeError("a BatchWorld cannot be the row of another one")

    def reset(self) -> None:
        self._check_open()
        for world in (self.world, *self.rows):
            world.reset()

    def reset_metrics(self) -> None:
        self._check_open()
        self.world.reset_metrics()

    def save(self, directory: pathlib.Path) -> None:
        self._check_open()
        self.world.save(directory)

    def shutdown(self) -> None:
        if not self._closed:
            self._closed = True
            shut_all([world.shutdown for world in (*self.rows, self.world)])


def _advance(
    number: int, turns: Turns, waiting: dict[int, Seat], act: Message | None
) -> None:
    """Goes on with the parley of a row, to the next act that it needs, or its end."""
    try:
        waiting[number] = next(turns) if act is None else turns.send(act)
    except StopIteration:
        waiting.pop(number, None)
