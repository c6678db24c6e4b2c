"""Plays greedy episodes of a run's checkpoint: `python -m distrl.evaluate --run_dir=…`.

Prints one JSON line.
"""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
from absl import app, flags

from distrl.core.errors import ConfigError, DistrlError

FLAGS = flags.FLAGS

flags.DEFINE_string("run_dir", None, "The run.")
flags.DEFINE_integer("episodes", 100, "How many fresh episodes.", lower_bound=1)
flags.DEFINE_integer("seed", 0, "Of the environments.", lower_bound=0)
flags.DEFINE_string("checkpoint", "newest", "newest, best, or the path of one.")
flags.mark_flag_as_required("run_dir")

_MAX_ENVIRONMENTS = 50


def find_checkpoint(run_dir: pathlib.Path, name: str) -> pathlib.Path:
    """The directory of a checkpoint. Raises ConfigError when there is none."""
    from distrl.checkpoints.checkpoint_store import CheckpointStore

    if name not in ("newest", "best"):
        return pathlib.Path(name)
    checkpoints = run_dir / "checkpoints"
    path = (
        CheckpointStore(checkpoints).newest()
        if name == "newest"
        else checkpoints / "best"
    )
    if path is None or not path.exists():
        raise ConfigError(f"--run_dir: {run_dir} has no {name} checkpoint")
    return path


def evaluate(
    run_dir: pathlib.Path, checkpoint: str, episodes: int, seed: int
) -> dict[str, object]:
    """Returns of greedy episodes and their mean, spread and extremes.

    Raises ConfigError for a run or checkpoint that cannot be used.
    """
    config = run_dir / "config.gin"
    if not config.is_file():
        raise ConfigError(f"--run_dir: there is no run in {run_dir}")
    path = find_checkpoint(run_dir, checkpoint)
    from distrl import configurables
    from distrl.agents.evaluation import greedy_returns
    from distrl.checkpoints.checkpoint_store import CheckpointStore

    agent = configurables.read_experiment(str(config)).agent
    arrays, counters = CheckpointStore(path.parent).load(path)
    slots = min(episodes, _MAX_ENVIRONMENTS)
    with agent.make_environment(seed, "evaluation", 1, slots) as environment:
        policy = agent.make_policy(environment.spec, arrays)
        returns = greedy_returns(environment, policy.act, episodes)
        policy.close()
    if returns is None:
        raise ConfigError("the evaluation was stopped")
    return {
        "checkpoint": path.name,
        "episodes": len(returns),
        "mean_return": float(np.mean(returns)),
        "std_return": float(np.std(returns)),
        "min_return": min(returns),
        "max_return": max(returns),
        "seed": seed,
        "counters": {k: n for k, n in counters.items() if k != "run"},  # the state
    }


def main(argv: list[str]) -> None:
    try:
        if len(argv) > 1:
            raise ConfigError(f"unexpected arguments {argv[1:]}")
        run_dir = pathlib.Path(FLAGS.run_dir)
        result = evaluate(run_dir, FLAGS.checkpoint, FLAGS.episodes, FLAGS.seed)
    except DistrlError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(result))


if __name__ == "__main__":
    app.run(main)
