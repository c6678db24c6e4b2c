"""A peer of `benchmark.unrolls`: Sample Factory's asynchronous PPO.

Run as `python -m distrl.benchmark.sample_factory_appo` by an interpreter that has
sample-factory, ale-py and opencv-python-headless (its gymnasium is older than ours: a
virtual environment of its own), in a folder that may be removed afterwards. Prints one
JSON line; its log goes to standard error. Batch, unroll and network are those of our
run. Deviation: advantages by GAE, for with V-trace release 2.1.1 ends in an
AttributeError; and env steps count once they are trained on.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import sys
from typing import Any

from distrl.benchmark import unroll_peers
from distrl.benchmark.unroll_peers import SteadyWindow

_NEVER = 10**9  # env steps, or s


def make_cartpole(*name: Any, **settings: Any) -> Any:
    import gymnasium as gym

    return gym.make("CartPole-v1")


def make_pong(*name: Any, **settings: Any) -> Any:
    """Pong behind the wrappers that ours uses too; current releases of ale-py do not
    register their games with the old gymnasium."""
    import gymnasium as gym
    import numpy as np
    from ale_py.env import AtariEnv

    env: Any = AtariEnv("pong", frameskip=1, repeat_action_probability=0.0)
    env = gym.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4)
    env = gym.wrappers.FrameStack(env, 4)

    class AsArray(gym.ObservationWrapper):
        def observation(self, observation: Any) -> Any:
            return np.asarray(observation)

    return AsArray(env)


NETWORKS: dict[str, dict[str, Any]] = {
    "cartpole": {
        "encoder_mlp_layers": unroll_peers.HIDDEN_SIZES,
        "nonlinearity": "tanh",
    },
    "pong": {
        "encoder_conv_architecture": "convnet_atari",
        "encoder_conv_mlp_layers": (512,),
        "nonlinearity": "relu",
        "obs_scale": 255.0,
        "env_frameskip": 1,  # the environment's wrappers skip
    },
}


def arguments(flags: argparse.Namespace) -> list[str]:
    """Sample Factory's command line."""
    settings: dict[str, Any] = {
        "algo": "APPO",
        "env": flags.task,
        "device": "cpu",
        "train_dir": ".",
        "experiment": "peer",
        "async_rl": True,
        "serial_mode": False,
        "with_vtrace": False,
        "use_rnn": False,
        "recurrence": 1,
        "num_workers": flags.num_actors,
        "num_envs_per_worker": unroll_peers.NUM_ENVS[flags.task],
        "worker_num_splits": 1,
        "rollout": unroll_peers.UNROLL_LENGTH,
        "batch_size": unroll_peers.BATCH_STEPS,
        "num_batches_per_epoch": 1,
        "num_epochs": 1,
        "learning_rate": unroll_peers.LEARNING_RATE,
        "exploration_loss_coeff": unroll_peers.ENTROPY_COST,
        "normalize_input": False,
        "normalize_returns": False,
        "train_for_env_steps": _NEVER,
        "save_every_sec": _NEVER,
        "save_best_every_sec": _NEVER,
        **NETWORKS[flags.task],
    }
    words = []
    for name, value in settings.items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{name}", *map(str, values)]
    return words


def train(flags: argparse.Namespace, window: SteadyWindow) -> None:
    """Trains until the window is over. Raises RuntimeError when it fails."""
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.algo.utils.misc import ExperimentStatus
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner

    class Watching(AlgoObserver):
        def on_training_step(self, runner: Any, training_steps: int) -> None:
            window.note(runner.env_steps.get(0, 0), training_steps)
            if window.over:
                runner.cfg.train_for_env_steps = 0  # this was the last one

    register_env("cartpole", make_cartpole)
    register_env("pong", make_pong)
    words = arguments(flags)
    parser, _ = parse_sf_args(argv=words)
    _, runner = make_runner(parse_full_cfg(parser, words))
    runner.register_observer(Watching())
    statuses = [runner.init(), runner.run()]
    if any(status != ExperimentStatus.SUCCESS for status in statuses):
        raise RuntimeError(f"Sample Factory ended with status {statuses}")


def main() -> None:
    flags = unroll_peers.parse(__doc__)
    window = SteadyWindow(flags.warm_up_secs, flags.secs)
    with contextlib.redirect_stdout(sys.stderr):
        train(flags, window)
    version = importlib.metadata.version("sample-factory")
    print(json.dumps(window.record(f"Sample Factory {version} APPO")))


if __name__ == "__main__":
    main()
