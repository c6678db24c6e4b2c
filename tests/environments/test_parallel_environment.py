"""A batch of environments over pipes: TF-Agents' criteria for its own."""

import functools
import os
import pickle
import time

import gymnasium
import numpy as np
import process_samples
import pytest
from back_ends import LIMITS, SEEDS, fails, parallel, pids, zeros
from child_objects import is_gone
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeeded,
)
from gymnasium.vector import AutoresetMode
from process_samples import Alone, Meets, Still, Told, Waits, factories
from small_environments import CountEnv, SeededEnv, SimpleEnv

from distrl.core.child_process import START_METHODS
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.environments.parallel_environment import ParallelEnvironment
from distrl.environments.slot_records import SlotSettings

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]

batch = functools.partial(parallel, limits=LIMITS)


def in_parallel(environment_factories, **kwargs):
    return ParallelEnvironment(environment_factories, limits=LIMITS, **kwargs)


def test_start_and_close():
    environment = batch(CountEnv, 2)
    found, before = pids(environment), time.monotonic()
    environment.close()
    environment.close()
    assert time.monotonic() - before < 2.0
    assert all(is_gone(pid) for pid in found)


@pytest.mark.parametrize("blocking", [False, True])
def test_specs_and_shapes(blocking):
    with batch(Still, 2, blocking=blocking) as environment:
        assert environment.spec == EnvironmentSpec(
            ArraySpec((3, 3), "float32"), ArraySpec((7,), "float32", -1.0, 1.0)
        )
        assert environment.num_envs == 2
        environment.reset()
        for _ in range(2):
            actions = np.stack([np.full(7, 0.5), np.full(7, -0.25)]).astype(np.float32)
            step = environment.step(actions)
            assert step.observation.shape == (2, 3, 3)
            assert step.observation[:, 0, 0].tolist() == [3.5, -1.75]  # each its own
            for part in step[1:4]:
                assert part.shape == (2,)
            assert [part.dtype.name for part in step[:4]] == [
                *("float32", "float32", "bool", "bool")
            ]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_any_factory_with_any_start_method(start_method):
    with in_parallel(factories(), start_method=start_method) as environment:
        environment.reset()
        for number in range(10):
            step = environment.step(np.arange(5))
            assert step.observation.tolist() == [number + 1] * 5
            assert step.reward.tolist() == [0, 1, 2, 3, 4]


def test_what_is_no_factory():
    with pytest.raises(TypeError, match="non-callable CountEnv"):
        in_parallel([CountEnv, CountEnv()])
    with pytest.raises(ValueError, match="at least one"):
        in_parallel([])
    with fails(TypeError, "not a gymnasium.Env.*CountEnv", 1):
        in_parallel([CountEnv, lambda: CountEnv])
    with pytest.raises(ValueError, match="'thread'"):
        in_parallel([CountEnv], start_method="thread")


def test_environments_that_differ():
    class Other(CountEnv):
        def __init__(self):
            super().__init__()
            self.action_space = gymnasium.spaces.Discrete(3)

    with pytest.raises(ValueError, match="environment 2 differs from environment 0"):
        in_parallel([CountEnv, CountEnv, Other])


def test_processes_start_side_by_side_unless_told_otherwise(tmp_path):
    meets = functools.partial(Meets, tmp_path, 3)
    batch(meets, 3).close()
    folder = tmp_path / "serial"
    folder.mkdir()
    batch(functools.partial(Alone, folder), 3, start_serially=True).close()
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    with fails(TimeoutError, "in vain", 0):
        factory = functools.partial(Meets, lonely, 2, 0.2)
        batch(factory, 2, start_serially=True)


@pytest.mark.parametrize("blocking", [False, True])
def test_blocking_is_one_after_the_other(tmp_path, blocking):
    """Slot 0 waits for what happens behind the end of `step_async`."""
    with batch(functools.partial(Waits, tmp_path / "go"), 2, blocking=blocking) as env:
        env.reset()
        if blocking:
            (tmp_path / "go").touch()
        env.step_async(np.array([1, 0]))
        done = [promise.settled for promise in env._promises]
        (tmp_path / "go").touch()
        assert done == ([True, True] if blocking else [False, False])
        assert env.step_wait().observation.tolist() == [1, 1]


def test_seeds():
    with batch(SeededEnv, 2, SEEDS) as environment:
        first, _ = environment.reset()
        assert environment.get_attr("first_seed") == [SEEDS.of(0), SEEDS.of(1)]
        assert (first[0] != first[1]).all()
        shown, _ = environment.reset([0, 1])
        for slot in range(2):
            np.testing.assert_array_equal(shown[slot], SeededEnv().reset(seed=slot)[0])
        np.testing.assert_array_equal(environment.reset(0)[0], shown)
        with pytest.raises(ValueError, match="expected 2 seeds, got 3"):
            environment.reset([1, 2, 3])
    with batch(SeededEnv, 2, SEEDS.behind(1)) as environment:
        np.testing.assert_array_equal(environment.reset()[0][0], first[1])


def test_render():
    factory = functools.partial(CountEnv, 3, False, "rgb_array")
    with batch(factory, 2) as environment:
        environment.reset()
        environment.step(zeros(environment))
        frames = environment.render()
        assert frames.dtype == np.uint8
        np.testing.assert_array_equal(frames, np.ones((2, 2, 2, 3)))
    with batch(functools.partial(CountEnv, 3, False, "human"), 1) as environment:
        with pytest.raises(NotImplementedError, match="Only rgb_array"):
            environment.render()


def test_calls_and_attributes():
    with in_parallel([CountEnv, functools.partial(CountEnv, 4)]) as environment:
        environment.reset()
        environment.step(zeros(environment))
        assert environment.call("add", 5, twice=True) == [11, 11]
        assert environment.get_attr("max_count") == [3, 4]
        environment.set_attr("max_count", [8, 9])
        assert environment.call("max_count") == [8, 9]
        environment.set_attr("max_count", 7)
        assert environment.get_attr("max_count") == [7, 7]
        with fails(AttributeError, "nothing", 0):
            environment.get_attr("nothing")
        assert not hasattr(environment, "max_count")
        assert environment.step(zeros(environment)).observation.tolist() == [2, 2]


def test_each_slot_resets_itself():
    """V-9: counts to 2, 3 and 3."""
    with in_parallel([functools.partial(CountEnv, n) for n in (2, 3, 3)]) as env:
        with pytest.raises(ResetNeeded):
            env.step([1, 2, 3])
        env.reset()
        steps = [env.step([1, 2, 3]) for _ in range(4)]
    assert [s.observation.tolist() for s in steps] == [
        *([1, 1, 1], [2, 2, 2], [0, 3, 3], [1, 0, 0])
    ]
    assert [s.reward.tolist() for s in steps] == [
        *([1, 2, 3], [1, 2, 3], [0, 2, 3], [1, 0, 0])
    ]
    assert [s.terminated.tolist() for s in steps] == [
        *([False] * 3, [True, False, False], [False, True, True], [False] * 3)
    ]


@pytest.mark.parametrize("wrong", [[0, 0], [0] * 4, [0.5] * 3, [[0]] * 3, 0])
def test_wrong_actions_step_nobody(wrong):
    with batch(CountEnv, 3) as environment:
        environment.reset()
        with pytest.raises(ValueError, match="expected 3 actions of int64"):
            environment.step(wrong)
        assert environment.get_attr("count") == [0, 0, 0]
        assert environment.step([1, 2, 3]).reward.tolist() == [1, 2, 3]


def test_calls_at_the_wrong_time(tmp_path):
    with batch(functools.partial(Waits, tmp_path / "go"), 2) as environment:
        environment.reset()
        with pytest.raises(NoAsyncCallError):
            environment.step_wait()
        environment.step_async([1, 1])
        for ask in (
            lambda: environment.step_async([0, 0]),
            lambda: environment.call("add", 1),
            lambda: environment.get_attr("count"),
            environment.render,
        ):
            with pytest.raises(AlreadyPendingCallError):
                ask()
        (tmp_path / "go").touch()
        assert environment.reset()[0].tolist() == [0, 0]  # the step is dropped
        assert environment.step([0, 0]).observation.tolist() == [1, 1]
    for ask in (environment.reset, lambda: environment.step([0, 0])):
        with pytest.raises(ClosedEnvironmentError):
            ask()


def test_close_ends_the_environments_and_their_processes(tmp_path):
    with batch(functools.partial(Told, tmp_path, owns=True), 2) as environment:
        environment.reset()
        own, processes = environment.get_attr("owned"), pids(environment)
        environment.step_async([0, 0])  # and a step is pending
    assert all(is_gone(pid) for pid in own + processes)
    assert all((tmp_path / f"closed{pid}").exists() for pid in processes)


def test_a_proxy_cannot_be_pickled():
    with batch(CountEnv, 1) as environment:
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            pickle.dumps(environment)


def test_what_children_inherit(monkeypatch):
    """Neither module state nor later variables: the factory brings what it needs."""
    monkeypatch.setattr(process_samples, "SETTING", 2)
    monkeypatch.setenv("DISTRL_TEST_SETTING", "2")

    class Reads(CountEnv):
        def setting(self):
            import process_samples as module

            return module.SETTING, os.environ.get("DISTRL_TEST_SETTING")

    def brings():
        import process_samples as module

        module.SETTING = 2
        return Reads()

    with in_parallel([Reads, brings]) as environment:
        assert environment.call("setting") == [(1, None), (2, None)]
    with in_parallel([Reads], start_method="spawn") as environment:
        assert environment.call("setting") == [(1, "2")]


def simple_envs():
    return [functools.partial(SimpleEnv, seed) for seed in range(3)]


def test_simple_environments_of_baselines():
    """V-2: what follows from the definition, step by step."""
    settings = SlotSettings(AutoresetMode.SAME_STEP, keep_infos=True)
    rewards = [[1] * 6, [1 / 2, 1] * 3, [1 / 3, 2 / 3, 1] * 2]
    with in_parallel(simple_envs(), settings=settings) as environment:
        start, _ = environment.reset()
        assert start[:, 0, 0].tolist() == [172, 37, 168]
        for k in range(6):
            step = environment.step(np.ones((3, 3, 8), np.uint8))
            assert step.observation[:, 0, 0].tolist() == [173 + k, 38 + k, 169 + k]
            np.testing.assert_allclose(step.reward, [row[k] for row in rewards])
            for slot, row in enumerate(rewards):
                infos = step.info if row[k] < 1 else step.info["final_info"]
                assert infos["foo"][slot] == f"bar{float(row[k])}"
