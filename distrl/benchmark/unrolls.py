"""What unrolls cost: `python -m distrl.benchmark.unrolls --secs=30 --task=cartpole`.

A run of IMPALA and, with --peer=rllib=PYTHON or --peer=sample_factory=PYTHON naming an
interpreter that has it, beside it RLlib's IMPALA or Sample Factory's APPO with the same
environments, network, unrolls of 20 and batches of 25. Unlike in configs/impala/,
nothing is replayed and nobody evaluates. A system after the other, one line each, of
--secs of training behind a warm-up of --warm_up_secs:

  env_steps_per_sec, learner_steps_per_sec  of wall time
  cpu_secs_per_1000_env_steps  all processes of the system
  learner_wait_fraction, actor_wait_fraction  mean share of time in waiting; ours only
  policy_lag                   learner steps by which the policy that acted was behind,
                               mean over one batch a second; ours only
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Sequence

import numpy as np

from distrl.benchmark import configured, unroll_peers, whole_runs
from distrl.benchmark.measuring import (
    Record,
    check_repeats,
    end_on_sigterm,
    print_records,
    rounded,
)
from distrl.benchmark.tree_cpu import TreeCpu
from distrl.benchmark.whole_runs import NEVER_SECS, running_lines, task_lines

CONFIGS = {task: f"configs/impala/{task}.gin" for task in unroll_peers.NUM_ENVS}
PEERS = {"rllib": "rllib_impala", "sample_factory": "sample_factory_appo"}
_NETWORKS = {
    "cartpole": (f"orthogonal_mlp.hidden_sizes = {unroll_peers.HIDDEN_SIZES}",),
    "pong": ("policy_value_network.torso = @nature_cnn",),
}


def bindings(flags: argparse.Namespace) -> list[str]:
    """The lines of gin of our run; those of the user win over all but its end."""
    return [
        f"ImpalaAgent.num_envs = {unroll_peers.NUM_ENVS[flags.task]}",
        f"Unrolls.unroll_length = {unroll_peers.UNROLL_LENGTH}",
        f"Unrolls.evaluation_period_secs = {NEVER_SECS}",
        f"UnrollBatches.batch_size = {unroll_peers.BATCH_SIZE}",
        "UnrollBatches.batches_per_message = 1",
        "UnrollBatches.replay_proportion = 0.0",
        "UnrollBatches.replay_capacity = 0",
        "Learning.publish_period = 1",
        "policy_value_network.shared = True",
        f"ImpalaModel.entropy_cost = {unroll_peers.ENTROPY_COST}",
        f"linear_schedule.first = {unroll_peers.LEARNING_RATE}",
        *_NETWORKS[flags.task],
        *flags.gin_binding,
        *whole_runs.ends(flags.warm_up_secs + flags.secs),
    ]


def our_run(flags: argparse.Namespace) -> Record:
    """The record of our run. Raises RuntimeError when it fails."""
    with tempfile.TemporaryDirectory(prefix="distrl-benchmark-") as folder:
        run_dir = pathlib.Path(folder) / "run"
        config = CONFIGS[flags.task]
        run = whole_runs.whole_run(config, bindings(flags), flags.num_actors, run_dir)
        return record_of(run_dir, run.cpu, flags.secs)


def record_of(run_dir: pathlib.Path, cpu: TreeCpu, secs: float) -> Record:
    """What the tasks of a run wrote about its last `secs`, ahead of its farewell.

    Raises RuntimeError when the learner had not begun by then.
    """
    lines = running_lines(run_dir)
    end = lines[-1]["time"] if lines else 0.0
    begin = end - secs
    learner = task_lines(run_dir, "learner-0")
    if not _total(learner, "learner_steps", begin):
        raise RuntimeError(f"the learner did nothing ahead of the last {secs} s")
    actors = [f.stem for f in (run_dir / "metrics").glob("actor-*.jsonl")]
    waits = whole_runs.wait_fractions([x for x in lines if x["time"] > begin])
    lags = [
        line["gauges"]["policy_lag"] for line in learner if begin < line["time"] <= end
    ]
    return {
        **_rates(
            "distrl",
            sum(_gain(task_lines(run_dir, a), "env_steps", begin, end) for a in actors),
            _gain(learner, "learner_steps", begin, end),
            secs,
            cpu.between(begin, end),
        ),
        "learner_wait_fraction": waits["learner"],
        "actor_wait_fraction": waits["actor"],
        "policy_lag": float(np.mean(lags)),
    }


def peer_run(flags: argparse.Namespace, name: str, python: str) -> Record:
    """The record of a peer. Raises RuntimeError when it fails."""
    arguments = [f"--task={flags.task}", f"--num_actors={flags.num_actors}"]
    arguments += [f"--secs={flags.secs}", f"--warm_up_secs={flags.warm_up_secs}"]
    secs = flags.secs + flags.warm_up_secs
    found, cpu = whole_runs.peer_run(python, PEERS[name], arguments, secs)
    begin, end = found["begin"], found["end"]
    return {
        **_rates(
            found["system"],
            found["env_steps"],
            found["learner_steps"],
            end - begin,
            cpu.between(begin, end),
        ),
        "learner_wait_fraction": None,
        "actor_wait_fraction": None,
        "policy_lag": None,
    }


def _rates(
    system: str, env_steps: float, learner_steps: float, secs: float, cpu_secs: float
) -> Record:
    return {
        "system": system,
        "secs": secs,
        "env_steps_per_sec": env_steps / secs,
        "learner_steps_per_sec": learner_steps / secs,
        "cpu_secs_per_1000_env_steps": 1000 * cpu_secs / max(env_steps, 1),
    }


def _gain(lines: Sequence[Record], key: str, begin: float, end: float) -> float:
    return _total(lines, key, end) - _total(lines, key, begin)


def _total(lines: Sequence[Record], key: str, at: float) -> float:
    """A total of a task at a time, linear between its lines."""
    totals = [line["totals"].get(key, 0) for line in lines]
    return float(np.interp(at, [line["time"] for line in lines], totals))


def _peer(text: str) -> tuple[str, str]:
    """NAME and PYTHON of a flag's value. Raises ArgumentTypeError."""
    name, _, python = text.partition("=")
    if name not in PEERS or not python:
        raise argparse.ArgumentTypeError(
            f"expected NAME=PYTHON with a NAME of {sorted(PEERS)}, got {text!r}"
        )
    return name, python


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--task", choices=sorted(CONFIGS), default="cartpole")
    made.add_argument("--gin_binding", action="append", default=[])
    made.add_argument("--num_actors", type=int, default=2, help="default 2")
    made.add_argument("--secs", type=float, default=30.0, help="default 30")
    made.add_argument("--warm_up_secs", type=float, default=8.0, help="default 8")
    made.add_argument("--peer", type=_peer, action="append", default=[])
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    flags = parser().parse_args(arguments)
    end_on_sigterm()
    records: list[Record] = []
    try:
        check_repeats(flags.secs, 1)
        records.append(our_run(flags))
        for name, python in flags.peer:
            records.append(peer_run(flags, name, python))
    except (RuntimeError, ValueError, OSError) as error:
        print(f"unrolls: {error}", file=sys.stderr)
        sys.exit(configured.BAD_INPUT if isinstance(error, ValueError) else 1)
    finally:
        if records:
            print_records([rounded(record) for record in records])


if __name__ == "__main__":
    main()
