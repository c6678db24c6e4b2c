"""One environment in a process: promises, errors with their type, a bounded end."""

import copy
import functools
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from back_ends import LIMITS
from child_objects import is_gone, start_script, wait_until
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import TimeLimit
from nested_environment import NestedEnv
from process_samples import Reused, Shows, Still, Told, Waits, factories
from small_environments import (
    CountEnv,
    FailingEnv,
    SeededEnv,
    Unpicklable,
    exit_process,
    hang,
    kill_process,
)

from distrl.core.child_process import START_METHODS, ChildDied, ChildFailed, ChildLimits
from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.environments.process_environment import ProcessEnvironment

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]


def process(factory=CountEnv, name="simulator 3", limits=LIMITS, **kwargs):
    return ProcessEnvironment(factory, name, limits=limits, **kwargs)


# Start, specs, end


def test_specs_are_those_of_the_environment():
    with process(Still) as environment:
        box = ArraySpec((3, 3), "float32")
        assert environment.spec == EnvironmentSpec(
            box, ArraySpec((7,), "float32", -1.0, 1.0)
        )
        assert environment.observation_space == Still.observation_space
        assert environment.action_space == Still.action_space
        assert environment.render_mode is None
        assert environment.pid not in (None, os.getpid())


def test_start_and_close_and_two_steps_and_close():
    with process() as environment:
        pid = environment.pid
    assert is_gone(pid)
    with process() as environment:
        environment.reset()
        for count in (1, 2):
            assert environment.step(5) == (count, 5.0, False, False, {})
        pid, before = environment.pid, time.monotonic()
        environment.close()
        environment.close()
        assert time.monotonic() - before < 2.0 and is_gone(pid)


@pytest.mark.parametrize("start_method", START_METHODS)
def test_any_factory_with_any_start_method(start_method):
    made = factories()[1:3] if start_method == "spawn" else factories()
    started = [process(factory, start_method=start_method) for factory in made]
    try:
        for environment in started:
            environment.start(wait=False)
        for environment in started:
            environment.wait_start()
            environment.reset()
            rewards = [environment.step(i)[:2] for i in range(10)]
            assert rewards == [(i + 1, float(i)) for i in range(10)]
    finally:
        for environment in started:
            environment.close()


def test_what_is_asked_too_early_or_too_late():
    environment = process()
    asks = [
        lambda: environment.spec,
        lambda: environment.action_space,
        lambda: environment.observation_space,
        lambda: environment.render_mode,
        environment.reset,
        environment.render,
        lambda: environment.step(1),
        lambda: environment.call("add", 1),
        environment.wait_start,
    ]
    for ask in asks:
        with pytest.raises(RuntimeError, match="simulator 3"):
            ask()
    environment.start()
    with pytest.raises(RuntimeError, match="simulator 3.*start"):
        environment.start()
    with pytest.raises(ResetNeeded, match="simulator 3"):
        environment.step(1)
    environment.close()
    for ask in [*asks, environment.start]:
        with pytest.raises(ClosedEnvironmentError, match="simulator 3"):
            ask()


def test_close_before_the_start():
    environment = process()
    environment.close()
    environment.close()


def test_what_is_no_factory():
    with pytest.raises(TypeError, match="non-callable CountEnv: <.*CountEnv"):
        process(CountEnv())
    with pytest.raises(TypeError, match="cannot be pickled"):
        process(functools.partial(CountEnv, threading.Lock()))
    with pytest.raises(ValueError, match="'thread'"):
        process(start_method="thread")
    for factory in (dict, lambda: CountEnv):
        environment = process(factory)
        with pytest.raises(TypeError, match="simulator 3: not a gymnasium.Env"):
            environment.start()
        assert is_gone(environment.pid)

    class Texts(CountEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Text(3)

    with pytest.raises(ConfigError, match=r"Text\("):
        process(Texts).start()


def test_a_proxy_cannot_be_copied():
    environment = process()
    for use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="ProcessEnvironment cannot be copied"):
            use(environment)
    assert not hasattr(environment, "max_count")
    assert not hasattr(environment, "__len__")


def test_the_environment_is_closed_and_so_is_its_own_process(tmp_path):
    with process(functools.partial(Told, tmp_path, owns=True)) as environment:
        owned, pid = environment.get("owned").result(), environment.pid
        assert not is_gone(owned)
    assert (tmp_path / f"closed{pid}").exists() and is_gone(owned) and is_gone(pid)


def test_close_during_a_long_step(tmp_path):
    limits = ChildLimits(startup_secs=30.0, call_secs=20.0, close_secs=0.3)
    factory = functools.partial(FailingEnv, at=1, fault=hang)
    with process(factory, limits=limits) as environment:
        environment.reset()
        promise = environment.step(1, blocking=False)
        before = time.monotonic()
        environment.close()
        assert time.monotonic() - before < 5.0 and is_gone(environment.pid or 0)
    with pytest.raises(ChildFailed, match="simulator 3 was closed"):
        promise.result()


def test_a_program_that_forgets_to_close_or_is_killed(tmp_path):
    text = """
import sys, threading
from small_environments import CountEnv
from distrl.environments.process_environment import ProcessEnvironment
if __name__ == "__main__":
    environment = ProcessEnvironment(CountEnv)
    environment.start()
    print(environment.pid, flush=True)
    threading.Event().wait(50.0)
"""
    here = os.path.dirname(os.path.abspath(__file__))
    text = f"import sys; sys.path.append({here!r})\n" + text
    program = start_script(text, tmp_path)
    try:
        child = int(program.stdout.readline())
        assert not is_gone(child)
        program.send_signal(signal.SIGKILL)
        program.wait(10)
        wait_until(lambda: is_gone(child), 5.0, "the orphan to end")
    finally:
        program.kill()
        program.communicate()
    program = start_script(text.replace("threading.Event().wait(50.0)", ""), tmp_path)
    try:
        out, _ = program.communicate(timeout=20)
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0 and is_gone(int(out))


# Steps and promises


@pytest.mark.parametrize("flatten", [False, True])
def test_steps_equal_those_of_the_environment_itself(flatten):
    alone = NestedEnv()
    with process(NestedEnv, flatten=flatten) as environment:
        mine = environment.reset(seed=3, options={"length": 7})
        assert data_equivalence(mine, alone.reset(seed=3, options={"length": 7}), True)
        alone.action_space.seed(0)
        for step in range(30):
            action = alone.action_space.sample()
            mine, expected = environment.step(action), alone.step(action)
            assert data_equivalence(mine[0], expected[0], exact=True)
            assert mine[1:][:3] == expected[1:4]
            assert data_equivalence(mine[4], expected[4], exact=True)
            if step % 7 == 6:
                pair = environment.reset(), alone.reset()
                assert data_equivalence(*pair, exact=True)


def test_leaves_travel_alone_when_flat(monkeypatch):
    sent = []
    with process(NestedEnv, flatten=True) as environment:
        call = environment._child.call
        monkeypatch.setattr(
            environment._child, "call", lambda *a: sent.append(a) or call(*a)
        )
        environment.reset()
        promise = environment.step(environment.action_space.sample(), blocking=False)
        (_, (method, action)) = sent
        assert method == "step" and type(action) is list and len(action) == 5
        observation = promise._promise.result()[0]
        assert type(observation) is list and len(observation) == 10
        outcome = promise.outcome()
        assert promise.done and promise.settled and promise.method == "step"
        assert outcome.error is None and set(outcome.value[0]) == set(
            environment.spec.observation
        )
        with pytest.raises(ValueError, match="pick"):
            environment.step({"move": 1})


def test_promises_in_any_order_and_twice():
    with process() as environment:
        first = environment.reset(blocking=False)
        one = environment.step(4, blocking=False)
        total = environment.get("count")
        two = environment.step(7, blocking=False)
        assert environment.spec.observation.dtype == "int64"  # asks nobody
        assert two.result()[:2] == (2, 7.0)
        assert one.result()[:2] == (1, 4.0) == one.result()[:2]
        assert first.result() == (0, {}) and total.result() == 1


def test_a_promise_that_is_late(tmp_path):
    with process(functools.partial(Waits, tmp_path / "go")) as environment:
        environment.reset()
        promise = environment.step(1, blocking=False)
        with pytest.raises(TimeoutError, match=r"simulator 3.*'step'.*0\.1 s"):
            promise.result(0.1)
        assert not promise.done
        (tmp_path / "go").touch()
        assert promise.result()[0] == 1


def test_steps_of_two_processes_overlap(tmp_path):
    """One waits for what is done behind the start of the other's step."""
    factory = functools.partial(Waits, tmp_path / "go")
    with process(factory) as a, process(factory) as b:
        a.reset(), b.reset()
        waiting = a.step(1, blocking=False)
        assert b.step(0)[0] == 1 and not waiting.done
        (tmp_path / "go").touch()
        assert waiting.result()[0] == 1


def test_observations_are_copies():
    with process(Reused) as environment:
        seen = [environment.reset()[0]] + [environment.step(0)[0] for _ in range(3)]
    for count, one in enumerate(seen):
        assert one["a"].tolist() == one["b"][0].tolist() == [count] * 2


def test_methods_and_attributes():
    with process(lambda: TimeLimit(CountEnv(9), 100)) as environment:
        environment.reset()
        environment.step(1)
        assert environment.call("add", 5).result() == 6
        assert environment.call("add", 5, twice=True).result() == 11
        assert environment.call("max_count").result() == 9
        assert environment.get("max_count").result() == 9
        assert environment.set("max_count", 2).result() is None
        assert environment.step(1)[2] is True
        for ask in (environment.get, environment.call):
            promise = ask("nothing")
            for _ in range(2):
                with pytest.raises(AttributeError, match="nothing"):
                    promise.result()
        assert environment.get("count").result() == 2


def test_render():
    for mode in ("human", None):
        with process(functools.partial(CountEnv, 3, False, mode)) as environment:
            environment.reset()
            assert environment.render_mode == mode
            with pytest.raises(NotImplementedError, match=f"Only rgb_array.*{mode}"):
                environment.render()
    with process(functools.partial(CountEnv, 3, False, "rgb_array")) as environment:
        environment.reset()
        environment.step(1)
        np.testing.assert_array_equal(environment.render(), np.ones((2, 2, 3)))
        assert environment.render().dtype == np.uint8


def test_seeds():
    def first(seed, given=None):
        with process(SeededEnv, seed=seed) as environment:
            a, b = environment.reset(seed=given)[0], environment.reset()[0]
            return [a.tolist(), b.tolist()], environment.get("first_seed").result()

    alone = SeededEnv()
    expected = [alone.reset(seed=5)[0].tolist(), alone.reset()[0].tolist()]
    assert first(5) == (expected, 5)
    assert first(None, given=5) == first(9, given=5) == (expected, 5)
    assert first(6)[0][0] != expected[0]

    def sample(environment):
        environment.reset()
        return environment.call("sample_action").result()

    class Samples(CountEnv):
        def sample_action(self):
            return int(self.action_space.sample())

    with process(Samples, seed=5) as a, process(Samples, seed=5) as b:
        assert sample(a) == sample(b)


def test_structure_comes_from_the_space():
    """Keys in another order and a list for a tuple; wrong ones are named."""
    space = spaces.Dict(
        a=spaces.Box(0, 9, (2,), np.uint8), b=spaces.Tuple([spaces.Discrete(3)] * 2)
    )
    good = {"b": [1, 2], "a": np.zeros(2, np.uint8), "more": 1}
    bad = [{"a": good["a"]}, {"a": good["a"], "b": (1,)}, (1, 2)]
    for flatten in (False, True):
        factory = functools.partial(Shows, space, good, good, *bad)
        with process(factory, flatten=flatten) as environment:
            for value in (environment.reset()[0], environment.step(0)[0]):
                assert set(value) == {"a", "b"} and value["b"] == (1, 2)
            with pytest.raises(ValueError, match="simulator 3: observation.*'b/0'"):
                environment.step(0)
    for wrong in (np.zeros(3, np.uint8), np.zeros(2), (0, 0)):
        with process(functools.partial(Shows, space["a"], wrong)) as environment:
            with pytest.raises(ValueError, match=r"simulator 3: .*uint8\[2\], got"):
                environment.reset()


# Faults


def test_an_error_in_a_step_asks_for_a_reset():
    with process(functools.partial(FailingEnv, "step", 3, KeyError)) as environment:
        environment.reset()
        assert [environment.step(i)[1] for i in (1, 2)] == [1.0, 2.0]
        failing, behind = (environment.step(i, blocking=False) for i in (3, 4))
        with pytest.raises(KeyError, match="planned") as caught:
            failing.result()
        assert "in 'step' of simulator 3" in str(caught.value.__cause__)
        assert "small_environments.py" in str(caught.value.__cause__)
        with pytest.raises(ResetNeeded, match="simulator 3"):
            behind.result()
        assert environment.call("add", 1).result() == 3  # nothing else has changed
        assert environment.reset() == (0, {}) and environment.step(5)[1] == 5.0


def test_an_error_in_a_reset():
    with process(functools.partial(FailingEnv, "reset", 2)) as environment:
        environment.reset()
        with pytest.raises(RuntimeError, match="planned"):
            environment.reset()
        with pytest.raises(ResetNeeded):
            environment.step(0)
        environment.reset()
        assert environment.step(0)[0] == 1


def test_an_error_in_the_constructor():
    environment = process(functools.partial(FailingEnv, "constructor", 1, OSError))
    with pytest.raises(OSError, match="planned") as caught:
        environment.start()
    assert "while it was made" in str(caught.value.__cause__)
    assert is_gone(environment.pid)
    environment.close()


def test_an_error_in_close_is_quiet():
    with process(functools.partial(FailingEnv, "close")) as environment:
        environment.reset()
    assert is_gone(environment.pid or 0)


def test_an_error_that_does_not_travel():
    def raises():
        raise Unpicklable("odd", 1)

    with process(lambda: FailingEnv(at=1, fault=raises)) as environment:
        environment.reset()
        with pytest.raises(ChildFailed, match="Unpicklable: odd 1"):
            environment.step(0)
        environment.reset()
        environment.step(0)


@pytest.mark.parametrize("where", ["constructor", "reset", "step"])
@pytest.mark.parametrize(
    "fault, text", [(exit_process, "exit code 7"), (kill_process, "SIGKILL")]
)
def test_a_process_that_dies(where, fault, text):
    environment = process(functools.partial(FailingEnv, where, 1, fault))
    before = time.monotonic()
    with pytest.raises(ChildDied, match=f"simulator 3.*{text}"):
        environment.start()
        environment.reset()
        environment.step(0)
    assert time.monotonic() - before < 5.0
    if where != "constructor":
        with pytest.raises(ChildDied, match=text):
            environment.reset()
    environment.close()


def test_a_process_that_is_killed_from_outside():
    with process() as environment:
        environment.reset()
        os.kill(environment.pid, signal.SIGKILL)
        with pytest.raises(ChildDied, match="SIGKILL") as caught:
            environment.step(0)
        assert caught.value.exitcode == -signal.SIGKILL


def test_an_environment_that_hangs():
    limits = ChildLimits(startup_secs=0.2, call_secs=0.2, close_secs=0.2)
    environment = process(
        functools.partial(FailingEnv, "constructor", 1, hang), limits=limits
    )
    with pytest.raises(TimeoutError, match=r"simulator 3.*0\.2 s"):
        with environment:
            pass
    assert is_gone(environment.pid or 0)
    patient = ChildLimits(startup_secs=30.0, call_secs=0.2, close_secs=0.2)
    factory = functools.partial(FailingEnv, "step", 1, hang)
    with process(factory, limits=patient) as environment:
        environment.reset()
        with pytest.raises(TimeoutError, match=r"'step' within 0\.2 s"):
            environment.step(0)
