"""What vector environments cost: `python -m distrl.benchmark.environments [--secs=5]`.

distrl's back-ends beside those of Gymnasium, and of stable-baselines3 and envpool where
they are installed, with the same actions, drawn ahead. Tasks:

  cartpole  CartPole-v1: about 10 µs of work a step
  pong      ALE Pong with the Atari stack (envpool: its own Pong, of equal settings)
  dummy     84x84x4 uint8 noise behind 1 ms of CPU time of the environment's thread

All back-ends of a task are started once and measured by turns, in rounds; medians of
the rounds, after one that warms up:

  env_steps_per_sec     of wall time, of all environments together; steps that reset
                        an environment count
  cpu_us_per_env_step   CPU time of this program and of the back-end's processes
  times_async           env_steps_per_sec over AsyncVectorEnv's of the same round

With --cycles=N, instead, N starts and ends of a SharedMemoryVectorEnvironment, and what
they left behind; exit code 1 if that is anything.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import psutil

from distrl.benchmark import environment_cycles
from distrl.benchmark.configured import BAD_INPUT
from distrl.benchmark.environment_back_ends import (
    ASYNC,
    BACK_ENDS,
    SEED,
    SHARED,
    TASKS,
    BackEnd,
    Task,
)
from distrl.benchmark.measuring import (
    Record,
    check_repeats,
    end_on_sigterm,
    print_records,
    rounded,
)

NOT_INSTALLED = "not installed"

_COLUMNS = ("env_steps_per_sec", "cpu_us_per_env_step", "times_async")
_NUM_ACTIONS_AHEAD = 1000  # vector steps until the actions come again


# Measuring.


class Rate(NamedTuple):
    """One round of one back-end."""

    per_sec: float  # env steps
    cpu_us: float  # an env step


class Running:
    """A back-end that was started, and its processes."""

    def __init__(self, name: str, environment: Any, pids: Sequence[int]):
        self.name, self._environment = name, environment
        self._clocks = [cpu_clock(pid) for pid in pids]

    def measure(self, actions: np.ndarray, secs: float) -> Rate:
        """Steps for `secs` with `actions`, `[T, num_envs]`, again and again."""
        steps, step, num_times = 0, self._environment.step, len(actions)
        cpu, start = self._cpu_ns(), time.perf_counter()
        end = now = start + secs
        while not steps or now < end:
            step(actions[steps % num_times])
            steps += 1
            now = time.perf_counter()
        cpu, env_steps = self._cpu_ns() - cpu, steps * actions.shape[1]
        return Rate(env_steps / (now - start), cpu / 1e3 / env_steps)

    def _cpu_ns(self) -> int:
        return time.process_time_ns() + sum(map(time.clock_gettime_ns, self._clocks))


def cpu_clock(pid: int) -> int:
    """The clock of another process's CPU time, all threads, as Linux numbers them.

    In ns, while psutil's times come in ticks of 10 ms.
    """
    return (~pid << 3) | 2


@contextmanager
def running(
    task: Task, num_envs: int, back_ends: Sequence[BackEnd]
) -> Iterator[list[Running]]:
    """All of them, started; closed with the block, also half-way."""
    with ExitStack() as stack:
        started = []
        for back_end in back_ends:
            before = set(psutil.Process().children(recursive=True))
            environment = back_end.start(task, num_envs)
            stack.callback(environment.close, **back_end.end)
            own = set(psutil.Process().children(recursive=True)) - before
            pids = [process.pid for process in own]
            started.append(Running(back_end.name, environment, pids))
        yield started


def rounds(
    started: Sequence[Running], actions: np.ndarray, secs: float, repeats: int
) -> dict[str, list[Rate]]:
    """What each did in each round but the first. The order alternates."""
    rates: dict[str, list[Rate]] = {one.name: [] for one in started}
    for number in range(repeats + 1):
        for one in started if number % 2 else reversed(started):
            rate = one.measure(actions, secs / repeats)
            if number:
                rates[one.name].append(rate)
    return rates


def measure(
    task: Task,
    num_envs: int,
    secs: float,
    repeats: int,
    back_ends: Sequence[BackEnd] = BACK_ENDS,
) -> tuple[list[Record], str]:
    """A record a back-end, and the verdict. `secs` are of each back-end."""
    fitting = [back_end for back_end in back_ends if back_end.fits(task)]
    installed = [back_end for back_end in fitting if back_end.is_installed]
    with running(task, num_envs, installed) as started:
        actions = random_actions(task, num_envs)
        rates = rounds(started, actions, secs, repeats)
    base = rates[ASYNC]
    records = [
        {
            "task": task.name,
            "num_envs": num_envs,
            "back_end": back_end.name,
            **summary(rates.get(back_end.name), base),
        }
        for back_end in fitting
    ]
    return records, verdict(task, ratios(rates[SHARED], base))


def random_actions(task: Task, num_envs: int) -> np.ndarray:
    """Discrete actions of a fixed seed, int64 [T, num_envs]."""
    environment = task.factory()
    number = environment.action_space.n  # type: ignore[attr-defined]
    environment.close()
    random = np.random.default_rng(SEED)
    return random.integers(0, number, (_NUM_ACTIONS_AHEAD, num_envs))


def summary(rates: Sequence[Rate] | None, base: Sequence[Rate]) -> Record:
    if rates is None:
        return {**dict.fromkeys(_COLUMNS), "note": NOT_INSTALLED}
    values = [
        np.median([rate.per_sec for rate in rates]),
        np.median([rate.cpu_us for rate in rates]),
        np.median(ratios(rates, base)),
    ]
    found = dict(zip(_COLUMNS, map(float, values), strict=True))
    return {**rounded(found), "note": None}


def ratios(rates: Sequence[Rate], base: Sequence[Rate]) -> list[float]:
    """How many times as fast as `base`, round by round."""
    return [a.per_sec / b.per_sec for a, b in zip(rates, base, strict=True)]


def verdict(task: Task, found: Sequence[float]) -> str:
    """One line: SHARED over ASYNC, and whether that is the task's goal."""
    median = float(np.median(found))
    word = "reached" if median >= task.goal else "MISSED"
    return (
        f"{task.name}: {SHARED} / {ASYNC} = {median:.2f} "
        f"(rounds {min(found):.2f} to {max(found):.2f}), goal {task.goal:g} {word}"
    )


# The program.


def read_flags(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(TASKS), help="joined by commas")
    parser.add_argument("--num_envs", type=int, default=8)
    parser.add_argument(
        "--secs", type=float, default=5.0, help="of each task and back-end, default 5"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="share --secs; medians are printed"
    )
    parser.add_argument("--cycles", type=int, help="start and close that many times")
    return parser.parse_args(arguments)


def measure_tasks(flags: argparse.Namespace) -> None:
    """Prints each task's results. Raises ValueError for flags that do not fit."""
    check_repeats(flags.secs, flags.repeats)
    if flags.num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {flags.num_envs}")
    names = flags.tasks.split(",")
    if unknown := [name for name in names if name not in TASKS]:
        raise ValueError(f"unknown tasks {unknown}, expected some of {list(TASKS)}")
    for name in names:
        records, line = measure(TASKS[name], flags.num_envs, flags.secs, flags.repeats)
        print_records(records)
        print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    flags = read_flags(arguments)
    end_on_sigterm()
    try:
        if flags.cycles is None:
            measure_tasks(flags)
        elif problems := environment_cycles.report(flags.cycles):
            print(f"environments: {'; '.join(problems)}", file=sys.stderr)
            sys.exit(1)
    except ValueError as error:
        print(f"environments: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
