"""The peer of `benchmark.rounds`: stable-baselines3's PPO in one process.

Run as `python -m distrl.benchmark.stable_baselines_ppo` by an interpreter that has
stable-baselines3; needs nothing else of distrl. Prints one JSON line. The rollout, the
epochs, the minibatch and the network are those of `configs/ppo/cartpole.gin` with 2
actors.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

NUM_ENVS, STEPS, EPOCHS, MINIBATCH = 8, 256, 4, 256
EVALUATION_EPISODES = 20
EVALUATION_ROUNDS = 8  # rounds between evaluations, whose time does not count


def make_model(seed: int, end: int) -> Any:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    return PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", NUM_ENVS, seed=seed),
        learning_rate=lambda left: max(1e-4, 1e-3 - 9e-4 * (1 - left)),
        n_steps=STEPS,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.0,
        seed=seed,
        device="cpu",
    )


def measure(secs: float, target_return: float | None, seed: int) -> dict[str, Any]:
    """Trains for so many seconds, or until an evaluation reaches the target."""
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    model = make_model(seed, 400_000)
    games = make_vec_env("CartPole-v1", EVALUATION_EPISODES, seed=seed + 1000)
    wall = cpu = 0.0
    reached = None
    while wall < secs and reached is None:
        start, before = time.perf_counter(), time.process_time()
        steps = EVALUATION_ROUNDS * NUM_ENVS * STEPS
        model.learn(steps, reset_num_timesteps=not model.num_timesteps)
        wall += time.perf_counter() - start
        cpu += time.process_time() - before
        if target_return is not None:
            mean, _ = evaluate_policy(model, games, EVALUATION_EPISODES)
            reached = mean if mean >= target_return else None
    return {
        "system": "stable-baselines3 PPO, one process",
        "env_steps": model.num_timesteps,
        "secs": wall,
        "env_steps_per_sec": model.num_timesteps / wall,
        "cpu_secs_per_1000_env_steps": 1000 * cpu / model.num_timesteps,
        "reached": reached,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secs", type=float, default=30.0)
    parser.add_argument("--target_return", type=float, default=None)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(json.dumps(measure(flags.secs, flags.target_return, flags.seed)))


if __name__ == "__main__":
    main()
