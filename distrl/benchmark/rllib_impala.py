"""A peer of `benchmark.unrolls`: RLlib's IMPALA with worker processes.

Run as `python -m distrl.benchmark.rllib_impala` by an interpreter that has ray[rllib],
torch, ale-py and opencv-python-headless, in a folder that may be removed afterwards.
Prints one JSON line. Batch, unroll and network are those of our run. Deviations: Atari
observations are float32 and channels come last, which RLlib's network asks for.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import Any

from distrl.benchmark import unroll_peers
from distrl.benchmark.unroll_peers import SteadyWindow

# With the default, 0, next to no sample arrives on a machine with few cores.
_SAMPLE_TIMEOUT_SECS = 0.02
_ITERATION_SECS = 0.5  # between two looks at the counts
_OBJECT_STORE_BYTES = 1 << 30


def make_pong(config: dict[str, Any]) -> Any:
    """Pong behind the wrappers that ours uses too."""
    import ale_py
    import gymnasium as gym
    import numpy as np

    gym.register_envs(ale_py)
    env = gym.make("PongNoFrameskip-v4")
    env = gym.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4)
    env = gym.wrappers.FrameStackObservation(env, 4)
    return gym.wrappers.TransformObservation(
        env,
        lambda frames: np.moveaxis(frames, 0, -1).astype(np.float32) / 255,
        gym.spaces.Box(0.0, 1.0, (84, 84, 4), np.float32),
    )


def make_algorithm(task: str, num_actors: int) -> Any:
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    register_env("pong", make_pong)
    names = {"cartpole": "CartPole-v1", "pong": "pong"}
    networks = {
        "cartpole": DefaultModelConfig(
            fcnet_hiddens=list(unroll_peers.HIDDEN_SIZES),
            fcnet_activation="tanh",
            vf_share_layers=True,
        ),
        "pong": DefaultModelConfig(
            conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]],
            conv_activation="relu",
            head_fcnet_hiddens=[512],
            vf_share_layers=True,
        ),
    }
    config = (
        IMPALAConfig()
        .environment(names[task])
        .env_runners(
            num_env_runners=num_actors,
            num_envs_per_env_runner=unroll_peers.NUM_ENVS[task],
            rollout_fragment_length=unroll_peers.UNROLL_LENGTH,
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .training(
            train_batch_size_per_learner=unroll_peers.BATCH_STEPS,
            lr=unroll_peers.LEARNING_RATE,
            entropy_coeff=unroll_peers.ENTROPY_COST,
            timeout_s_sampler_manager=_SAMPLE_TIMEOUT_SECS,
        )
        .rl_module(model_config=networks[task])
        .reporting(min_time_s_per_iteration=_ITERATION_SECS)
        .debugging(log_level="ERROR")
    )
    return config.build_algo()


def measure(algorithm: Any, window: SteadyWindow) -> None:
    """Trains until the window is over. An update of the learners is a learner step."""
    updates = 0
    update = algorithm.learner_group.update

    def counted(*arguments: Any, **settings: Any) -> Any:
        nonlocal updates
        updates += 1
        return update(*arguments, **settings)

    algorithm.learner_group.update = counted
    while not window.over:
        result = algorithm.train()
        sampled = result["env_runners"].get("num_env_steps_sampled_lifetime", 0)
        window.note(int(sampled), updates)


def main() -> None:
    flags = unroll_peers.parse(__doc__)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # or into ~/.ray
    import ray

    ray.init(
        num_cpus=flags.num_actors + 1,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        _temp_dir=os.path.abspath("ray"),
    )
    try:
        window = SteadyWindow(flags.warm_up_secs, flags.secs)
        algorithm = make_algorithm(flags.task, flags.num_actors)
        measure(algorithm, window)
        print(json.dumps(window.record(f"RLlib {ray.__version__} IMPALA")), flush=True)
        algorithm.stop()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
