"""What acting costs: `python -m distrl.benchmark.acting --config=FILE`.

One actor alone: its environments, behaviour policy and n-step accumulator, without
run, network and queue. Medians of the repeats:

  env_steps_per_sec    of wall time, one process
  cpu_ms               CPU ms per 1,000 env steps, all threads
  environment_cpu_ms   the part of it in which environments step
  inference_cpu_ms     in which the policy decides
  accumulation_cpu_ms  in which n-step transitions are made

The parameters are random unless --checkpoint names some. They matter: they say how long
episodes last, and a reset may cost more than a step.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from distrl.benchmark import configured
from distrl.benchmark.measuring import Record, SectionClock, medians, rounded
from distrl.core import seeds

if TYPE_CHECKING:
    from distrl.agents.apex_agent import ApexAgent
    from distrl.agents.behaviour import Behaviour
    from distrl.environments.vector_environment import VectorEnvironment
    from distrl.memories.n_step_accumulator import NStepAccumulator

SECTIONS = ("environment", "inference", "accumulation")


def make_policy(
    agent: ApexAgent, environment: VectorEnvironment, checkpoint: str | None
) -> Behaviour:
    """The behaviour policy of a run's only actor. Raises ConfigError, ValueError."""
    from distrl.agents.apex_actor import make_behaviour
    from distrl.checkpoints.checkpoint_store import CheckpointStore
    from distrl.checkpoints.parameters import flatten_parameters
    from distrl.checkpoints.variables import select_parameters

    spec, slots = environment.spec, range(environment.num_envs)
    random = seeds.seed_sequence(0, "actor", 0)
    policy = make_behaviour(agent.model, spec, agent.acting, slots, len(slots), random)
    if checkpoint is not None:
        path = pathlib.Path(checkpoint)
        arrays, _ = CheckpointStore(path.parent).load(path)
        selected = select_parameters(policy.parameter_specs, arrays)
        policy.load(0, flatten_parameters(selected))
    return policy


def actor_step(
    environment: VectorEnvironment,
    policy: Behaviour,
    accumulator: NStepAccumulator,
    clock: SectionClock,
) -> Callable[[], int]:
    """A function that does one actor step and returns the env steps in it."""
    observation, _ = environment.reset()

    def step() -> int:
        nonlocal observation
        clock.start()
        decision = policy.decide(observation)
        clock.end("inference")
        stepped = environment.step(decision.action)
        clock.end("environment")
        env_steps = accumulator.add(observation, *decision, *stepped[1:4])
        if accumulator.ready:
            accumulator.take()
        clock.end("accumulation")
        observation = stepped.observation
        return env_steps

    return step


def measure(flags: argparse.Namespace) -> list[Record]:
    """One record; CPU times are those of 1,000 env steps."""
    agent = configured.read_agent(flags)
    from distrl.memories.n_step_accumulator import NStepAccumulator

    acting, clock = agent.acting, SectionClock()
    with agent.make_environment(0, "actor", 0, agent.num_envs) as environment:
        policy = make_policy(agent, environment, flags.checkpoint)
        accumulator = NStepAccumulator(
            environment.spec,
            environment.num_envs,
            acting.n_step,
            acting.discount,
            acting.block_length,
        )
        step = actor_step(environment, policy, accumulator, clock)
        costs = medians(step, flags.secs, flags.repeats, clock)
        policy.close()
    record = {
        "part": "acting",
        "num_envs": agent.num_envs,
        "env_steps_per_sec": costs["per_sec"],
        "cpu_ms": 1000 * costs["cpu"],
        **{f"{name}_cpu_ms": 1000 * costs[name] for name in SECTIONS},
    }
    return [rounded(record)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = configured.parser(__doc__, secs=10.0)
    parser.add_argument("--checkpoint", help="directory of one, for its parameters")
    configured.print_measured("acting", parser.parse_args(arguments), measure)


if __name__ == "__main__":
    main()
