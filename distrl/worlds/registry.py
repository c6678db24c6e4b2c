"""Worlds by name: `create_world("pettingzoo:classic.tictactoe_v3", participants)`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import gymnasium

from distrl.core.errors import ConfigError
from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.environment_participant import EnvironmentParticipant
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.hogwild_world import HogwildWorld
from distrl.worlds.multi_world import Choice, MultiWorld
from distrl.worlds.parallel_world import ParallelWorld
from distrl.worlds.participant import Participant
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.pettingzoo_world import PettingZooWorld
from distrl.worlds.world import World

#: From a variant ("" for none), participants and an index to a world.
MakeTask = Callable[[str, Sequence[Participant], ExampleIndex], World]
#: The same of one variant.
MakeVariant = Callable[[Sequence[Participant], ExampleIndex], World]

_tasks: dict[str, MakeTask] = {}


def register_task(name: str, make: MakeTask) -> None:
    """Makes a task known by a name. Raises ValueError for a name that is taken, or has
    a ':' or ','."""
    if name in _tasks or not name or set(":,") & set(name):
        raise ValueError(f"a task needs a new name without ':' and ',', got {name!r}")
    _tasks[name] = make


def create_task(
    task: str, participants: Sequence[Participant], index: ExampleIndex
) -> World:
    """The world of one task, "name" or "name:variant". Raises ConfigError for one that
    nobody knows."""
    return _maker(task)(participants, index)


def _maker(task: str) -> MakeVariant:
    name, _, variant = task.partition(":")
    if name not in _tasks:
        raise ConfigError(f"task {task!r}: nobody knows it; expected {sorted(_tasks)}")
    return partial(_tasks[name], variant)


def create_world(
    task: str,
    make_participants: Callable[[], Sequence[Participant]],
    num_episodes: int | None = None,
    num_workers: int = 0,
    batch_size: int = 1,
    weights: Sequence[float] | Literal["stochastic"] | None = None,
    choose: Choice | None = None,
    seed: int = 0,
) -> World:
    """A world of tasks by name, ready to be played.

    Args:
      task: "name" or "name:variant", several with commas between: a mixture.
      make_participants: makes those that sit in it, beside what the task brings; called
        once in each process.
      num_episodes: of an epoch, of each task.
      num_workers: processes, 0: this one.
      batch_size: rows that are played together, in each process.
      weights, choose, seed: how a mixture chooses, see MultiWorld. Episodes do not
        depend on it: the one with the number n is reset with the seed n.

    Raises ConfigError for no task, one that nobody knows, and weights or a choice for
    one task; TypeError and ValueError for other bad arguments; what the worlds raise.
    """
    if not callable(make_participants):
        raise TypeError(
            f"make_participants: expected a function, got {make_participants!r}"
        )
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    tasks = [part.strip() for part in task.split(",") if part.strip()]
    if not tasks:
        raise ConfigError(f"No task specified. Expected one of {sorted(_tasks)}")
    if len(tasks) == 1 and (weights is not None or choose is not None):
        raise ConfigError(f"weights and choose are for mixtures, got one task, {task}")
    makers = [(task, _maker(task)) for task in tasks]  # workers may not know them
    make = partial(
        _make_world, makers, make_participants, num_episodes, weights, choose, seed
    )
    if num_workers:
        return HogwildWorld(make, num_workers, batch_size)
    return BatchWorld(make(0), batch_size) if batch_size > 1 else make(0)


def _make_world(
    makers: Sequence[tuple[str, MakeVariant]],
    make_participants: Callable[[], Sequence[Participant]],
    num_episodes: int | None,
    weights: Sequence[float] | Literal["stochastic"] | None,
    choose: Choice | None,
    seed: int,
    worker: int,
) -> World:
    participants = make_participants()
    worlds = [maker(participants, ExampleIndex(num_episodes)) for _, maker in makers]
    if len(worlds) == 1:
        return worlds[0]
    for (task, _), world in zip(makers, worlds, strict=True):
        world.name = task
    return MultiWorld(worlds, weights, choose, seed + worker)


def _gymnasium_task(
    variant: str, participants: Sequence[Participant], index: ExampleIndex
) -> World:
    if variant not in gymnasium.registry:
        raise ConfigError(f"gymnasium:{variant}: Gymnasium does not know {variant!r}")
    environment = EnvironmentParticipant(
        partial(gymnasium.make, variant), index, name=variant
    )
    return PartnerWorld([environment, *participants])


def _pettingzoo_task(
    variant: str, participants: Sequence[Participant], index: ExampleIndex
) -> World:
    """A module of PettingZoo, such as "classic.tictactoe_v3". It has a `parallel_env`
    where the agents act at once, whichever form the game was written in."""
    if not variant:
        raise ConfigError(
            "pettingzoo:: which game? Such as pettingzoo:classic.chess_v6"
        )
    try:
        module: Any = importlib.import_module(f"pettingzoo.{variant}")
    except ModuleNotFoundError as error:
        raise ConfigError(f"pettingzoo:{variant}: {error}") from error
    if callable(getattr(module, "parallel_env", None)):
        return ParallelWorld(module.parallel_env, participants, index)
    if callable(getattr(module, "env", None)):
        return PettingZooWorld(module.env, participants, index)
    raise ConfigError(f"pettingzoo:{variant}: this module of PettingZoo has no game")


register_task("gymnasium", _gymnasium_task)
register_task("pettingzoo", _pettingzoo_task)
