"""Environments that write into shared memory."""

import functools
import os
import pickle
import signal
import time

import numpy as np
import pytest
from back_ends import LIMITS, SEEDS, fails, parallel, pids, serial, zeros
from child_objects import is_gone, start_script, wait_until
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from nested_environment import NestedEnv
from process_samples import Reused, Told, factories
from small_environments import CountEnv, InTurn, SeededEnv, SimpleEnv

from distrl.core.child_process import START_METHODS
from distrl.core.errors import ConfigError
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)
from distrl.environments.slot_records import SlotSettings

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]

batch = functools.partial(SharedMemoryVectorEnvironment, limits=LIMITS)


@pytest.mark.parametrize("each", [3, 4, 5, 6, None])
def test_twelve_environments(each):
    """V-3: the same whatever the number of processes, also when it does not divide."""
    number = -(-12 // each) if each else min(12, len(os.sched_getaffinity(0)))
    with (
        batch(SeededEnv, 12, SEEDS, environments_per_process=each) as environment,
        serial(SeededEnv, 12, SEEDS) as reference,
    ):
        assert len(pids(environment)) == number
        seen, expected = environment.reset()[0], reference.reset()[0]
        for _ in range(12):
            np.testing.assert_array_equal(seen, expected)
            actions = np.arange(12)
            mine, theirs = environment.step(actions), reference.step(actions)
            for one, other in zip(mine[1:4], theirs[1:4], strict=True):
                np.testing.assert_array_equal(one, other)
            seen, expected = mine.observation, theirs.observation


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_simple_environments_of_baselines(tmp_path, dtype):
    """V-1: one after the other, over pipes, and over shared memory."""
    settings = SlotSettings(AutoresetMode.SAME_STEP, keep_infos=True)
    made = [functools.partial(SimpleEnv, seed, dtype=dtype) for seed in range(3)]
    folders = [tmp_path / name for name in ("serial", "pipes", "shared")]
    for folder in folders:
        folder.mkdir()
    factories = [InTurn(folder, *made) for folder in folders]
    rng = np.random.default_rng(0)
    with (
        serial(factories[0], 3, settings=settings) as a,
        parallel(factories[1], 3, settings=settings, start_serially=True) as b,
        batch(factories[2], 3, settings=settings, environments_per_process=3) as c,
    ):
        starts = [environment.reset()[0] for environment in (a, b, c)]
        assert starts[0].shape == (3, 3, 8) and starts[0].dtype == np.dtype(dtype)
        np.testing.assert_array_equal(starts[1:], [starts[0]] * 2)
        for _ in range(100):
            actions = rng.integers(0, 100, (3, 3, 8)).astype(dtype)
            expected, *others = (e.step(actions) for e in (a, b, c))
            for step in others:
                for mine, theirs in zip(step[:4], expected[:4], strict=True):
                    np.testing.assert_array_equal(mine, theirs)
                assert repr(step.info) == repr(expected.info)


@pytest.mark.parametrize("start_method", START_METHODS)
def test_any_start_method(start_method):
    factory = factories()[1]  # a lambda; ParallelEnvironment has them all
    with batch(factory, 2, None, SlotSettings(), 1, start_method) as environment:
        environment.reset()
        for _ in range(10):
            assert environment.step([3, 4]).reward.tolist() == [3, 4]
        assert environment.get_attr("count") == [10] * 2


def test_what_cannot_be_made():
    with pytest.raises(TypeError, match="non-callable CountEnv"):
        batch(CountEnv(), 2)
    with pytest.raises(ValueError, match="num_envs.*0"):
        batch(CountEnv, 0)
    with pytest.raises(ValueError, match="environments_per_process.*got 0"):
        batch(CountEnv, 2, environments_per_process=0)
    with pytest.raises(ValueError, match="'thread'"):
        batch(CountEnv, 2, start_method="thread")
    with fails(TypeError, "not a gymnasium.Env", 0):
        batch(dict, 2)

    class Texts(CountEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Text(3)

    with pytest.raises(ConfigError, match=r"Text\("):
        batch(Texts, 2)


def leaves(environment, observation):
    return [observation["a"], observation["b"][0]]


def test_observations_are_copies():
    """V-15, at every leaf: nobody's later step or scribble shows anywhere else."""
    with batch(Reused, 2) as environment:
        seen = [environment.reset()[0]]
        seen += [environment.step([0, 0]).observation for _ in range(3)]
        for count, one in enumerate(seen):
            for leaf in leaves(environment, one):
                assert leaf.flags.owndata and leaf.tolist() == [[count] * 2] * 2
        for leaf in leaves(environment, seen[-1]):
            leaf[:] = 99
        after = environment.step([0, 0])
        for leaf in leaves(environment, after.observation):
            assert leaf.tolist() == [[4] * 2] * 2
        rewards = after.reward, after.terminated, after.truncated
        before = [part.copy() for part in rewards]
        environment.step([1, 1])
        for now, then in zip(rewards, before, strict=True):
            np.testing.assert_array_equal(now, then)


def test_without_copies_an_observation_is_valid_for_one_more_step():
    with batch(Reused, 2, copy=False, environments_per_process=1) as environment:
        seen = [environment.reset()[0]]
        for count in range(1, 6):
            step = environment.step([0, 0])
            seen.append(step.observation)
            for back in (1, 0):
                for leaf in leaves(environment, seen[count - back]):
                    assert leaf.tolist() == [[count - back] * 2] * 2
            if count > 1:  # and not for two
                for leaf in leaves(environment, seen[count - 2]):
                    assert leaf.tolist() == [[count] * 2] * 2
        for part in step[1:4]:
            assert part.flags.owndata
    assert seen[-1]["a"].tolist() == [[5, 5]] * 2  # the memory goes with its last user


def num_mappings():
    with open("/proc/self/maps") as file:
        return sum("memfd:distrl" in line for line in file)


@pytest.mark.parametrize("was_used", [False, True])
@pytest.mark.parametrize("copy", [False, True])
def test_the_memory_goes_with_the_environment(was_used, copy):
    before = num_mappings()
    environment = batch(Reused, 2, copy=copy)
    if was_used:
        environment.reset()
        environment.step([0, 0])
    assert num_mappings() == before + 1
    environment.close()
    assert num_mappings() == before


def test_without_copies_the_half_of_a_pending_step_is_valid():
    with batch(Reused, 1, copy=False) as environment:
        environment.reset()
        first = environment.step([0]).observation
        environment.step_async([0])
        assert first["a"].tolist() == [[1, 1]]
        environment.step_wait()
        assert first["a"].tolist() == [[1, 1]]


@pytest.mark.parametrize("name", ["missing", "shape", "kind", "number"])
def test_wrong_actions_step_nobody(name):
    with batch(NestedEnv, 2, SEEDS) as environment:
        environment.reset(options={"length": 9})
        good = {
            "move": np.zeros((2, 2), np.float32),
            "pick": (np.zeros(2, int), np.zeros((2, 3), np.int8)),
            "dials": np.zeros((2, 2), int),
            "force": np.zeros(2, np.uint8),
        }
        bad = {
            "missing": {k: v for k, v in good.items() if k != "force"},
            "shape": {**good, "dials": np.zeros((2, 1), int)},
            "kind": {**good, "force": np.full(2, 0.5)},
            "number": {**good, "force": np.zeros(3, np.uint8)},
        }[name]
        text = {"kind": "2 actions of uint8.*float64", "missing": "force"}
        with pytest.raises(ValueError, match=text.get(name, "expected 2 actions of")):
            environment.step(bad)
        assert environment.get_attr("_left") == [9, 9]
        environment.step(good)
        assert environment.get_attr("_left") == [8, 8]


def test_calls_attributes_and_frames():
    factory = functools.partial(CountEnv, 9, False, "rgb_array")
    with batch(factory, 3, environments_per_process=2) as environment:
        environment.reset()
        environment.step(zeros(environment))
        assert environment.call("add", 5, twice=True) == [11] * 3
        environment.set_attr("max_count", [7, 8, 9])
        assert environment.get_attr("max_count") == [7, 8, 9]
        with fails(AttributeError, "nothing", 0):
            environment.get_attr("nothing")
        np.testing.assert_array_equal(environment.render(), np.ones((3, 2, 2, 3)))
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            pickle.dumps(environment)


def test_close_ends_the_environments_and_their_processes(tmp_path):
    factory = functools.partial(Told, tmp_path, owns=True)
    with batch(factory, 3, environments_per_process=2) as environment:
        environment.reset()
        own, processes = environment.get_attr("owned"), pids(environment)
        environment.step_async(zeros(environment))
    environment.close()
    assert all(is_gone(pid) for pid in own + processes)
    assert all((tmp_path / f"closed{pid}").exists() for pid in processes)


SCRIPT = f"""
import sys, threading
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import numpy as np
from small_environments import CountEnv
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)
if __name__ == "__main__":
    environment = SharedMemoryVectorEnvironment(
        CountEnv, 2, environments_per_process=1, copy=False)
    observation, _ = environment.reset()
    environment.step([0, 0])
    print(*(worker.child.pid for worker in environment._workers), flush=True)
    threading.Event().wait(50.0)
"""


def test_a_killed_program_leaves_nothing(tmp_path):
    """P-17; shared memory goes too, as `nothing_left` sees."""
    program = start_script(SCRIPT, tmp_path)
    try:
        children = [int(pid) for pid in program.stdout.readline().split()]
        assert len(children) == 2 and not any(is_gone(pid) for pid in children)
        program.send_signal(signal.SIGKILL)
        program.wait(10)
        gone = functools.partial(map, is_gone, children)
        wait_until(lambda: all(gone()), 5.0, "the orphans to end")
    finally:
        program.kill()
        program.communicate()


def test_a_program_that_forgets_to_close_ends(tmp_path):
    program = start_script(SCRIPT.replace("threading.Event().wait(50.0)", ""), tmp_path)
    before = time.monotonic()
    try:
        out, _ = program.communicate(timeout=20)
    finally:
        program.kill()
        program.wait()
    assert time.monotonic() - before < 10.0 and program.returncode == 0
    assert all(is_gone(int(pid)) for pid in out.split())
