"""Plays greedy episodes of a run's checkpoint: `python -m distrl.evaluate --run_dir=…`.

Prints one JSON line. Episodes are numbered, and each has a seed of its own: they are
the same for any number of workers.
"""

from __future__ import annotations

import json
import pathlib
import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from absl import app, flags

from distrl.core.errors import ConfigError, DistrlError

if TYPE_CHECKING:
    from distrl.worlds.world import World

FLAGS = flags.FLAGS

_STEPS_PER_REQUEST = 64  # of a worker


def define_flags() -> None:
    """Of the program: another one may import this module beside its own."""
    flags.DEFINE_string("run_dir", None, "The run.")
    flags.DEFINE_integer("episodes", 100, "How many fresh episodes.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Of the environments.", lower_bound=0)
    flags.DEFINE_integer(
        "num_workers", 1, "Processes that play; 1: this one alone.", lower_bound=1
    )
    flags.DEFINE_string(
        "checkpoint", "newest", "newest, best, the name of one of the run, or a path."
    )
    flags.mark_flag_as_required("run_dir")


def find_checkpoint(run_dir: pathlib.Path, name: str) -> pathlib.Path:
    """The directory of a checkpoint. Raises ConfigError when there is none."""
    from distrl.checkpoints.checkpoint_store import CheckpointStore

    checkpoints = run_dir / "checkpoints"
    if name == "newest":
        path = CheckpointStore(checkpoints).newest()
        if path is None:
            raise ConfigError(f"--run_dir: {run_dir} has no newest checkpoint")
        return path
    for path in (checkpoints / name, pathlib.Path(name)):
        if path.is_dir():
            return path
    raise ConfigError(f"--checkpoint: {run_dir} has no {name} checkpoint")


def evaluate(
    run_dir: pathlib.Path,
    checkpoint: str,
    episodes: int,
    seed: int,
    num_workers: int = 1,
) -> dict[str, object]:
    """Returns of greedy episodes and their mean, spread and extremes.

    Raises ConfigError for a run or checkpoint that cannot be used, WorkerError for a
    worker that has failed.
    """
    config = run_dir / "config.gin"
    if not config.is_file():
        raise ConfigError(f"--run_dir: there is no run in {run_dir}")
    path = find_checkpoint(run_dir, checkpoint)
    from distrl.agents.evaluation_world import returns_of
    from distrl.checkpoints.checkpoint_store import CheckpointStore
    from distrl.worlds.errors import WorkerError
    from distrl.worlds.hogwild_world import HogwildWorld

    _, counters = CheckpointStore(path.parent).load(path)
    num_workers = min(num_workers, episodes)
    make = partial(make_world, config, path, episodes, seed, num_workers)
    pool = partial(HogwildWorld, make, num_workers, 1, _STEPS_PER_REQUEST)
    try:
        with make(0) if num_workers == 1 else pool() as world:
            while world.parley():
                pass
            returns = returns_of(world.report())
    except WorkerError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        raise
    return {
        "checkpoint": path.name,
        "episodes": len(returns),
        "mean_return": float(np.mean(returns)),
        "std_return": float(np.std(returns)),
        "min_return": min(returns),
        "max_return": max(returns),
        "returns": returns,
        "seed": seed,
        "counters": {k: n for k, n in counters.items() if k != "run"},  # the state
    }


def make_world(
    config: pathlib.Path,
    checkpoint: pathlib.Path,
    episodes: int,
    seed: int,
    num_workers: int,
    worker: int,
) -> World:
    """The episodes of a checkpoint, for one of the workers. Raises ConfigError."""
    from distrl import configurables  # imports TensorFlow: seconds
    from distrl.agents.evaluation_world import EvaluationWorld, num_slots
    from distrl.checkpoints.checkpoint_store import CheckpointStore
    from distrl.core.seeds import EnvironmentSeeds
    from distrl.worlds.example_index import ExampleIndex

    alone = configurables.WITHOUT_CHILDREN  # --num_workers says how many processes play
    agent = configurables.read_experiment(str(config), alone).agent
    arrays, _ = CheckpointStore(checkpoint.parent).load(checkpoint)
    slots = num_slots(episodes, num_workers)
    environment = agent.make_environment(seed, "evaluation", 1, slots)
    try:
        policy = agent.make_policy(environment.spec, arrays)
    except BaseException:
        environment.close()
        raise
    seeds = EnvironmentSeeds(seed, "evaluation", 1)
    numbers = [seeds.of(number) for number in range(episodes)]
    index = ExampleIndex(episodes)
    return EvaluationWorld(environment, policy.act, index, numbers, policy.close)


def main(argv: list[str]) -> None:
    try:
        if len(argv) > 1:
            raise ConfigError(f"unexpected arguments {argv[1:]}")
        run_dir = pathlib.Path(FLAGS.run_dir)
        result = evaluate(
            run_dir, FLAGS.checkpoint, FLAGS.episodes, FLAGS.seed, FLAGS.num_workers
        )
    except DistrlError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(result))


if __name__ == "__main__":
    define_flags()
    app.run(main)
