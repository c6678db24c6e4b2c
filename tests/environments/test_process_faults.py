"""Environments that raise, die or hang: named, bounded, and the others in step."""

import functools
import os
import signal
import time

import numpy as np
import pytest
from back_ends import (
    BACK_ENDS,
    FEW,
    IMPATIENT,
    LIMITS,
    SEEDS,
    fails,
    owner,
    pids,
    serial,
    zeros,
)
from child_objects import is_gone
from gymnasium.error import NoAsyncCallError, ResetNeeded
from process_samples import Secretive, Waits
from small_environments import (
    STEPS,
    CountEnv,
    FailingEnv,
    Unpicklable,
    exit_process,
    hang,
    kill_process,
    leave,
)

from distrl.core.child_process import ChildDied, ChildFailed, ChildLimits
from distrl.environments.parallel_environment import ParallelEnvironment
from distrl.environments.restarts import RestartPolicy
from distrl.environments.slot_records import SlotSettings

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]

N = 3
every = pytest.mark.parametrize("make", FEW.values(), ids=FEW)
DEATHS = [(exit_process, "exit code 7"), (kill_process, "SIGKILL")]
deaths = pytest.mark.parametrize("fault, text", DEATHS, ids=["exit", "kill"])


def failing(where="step", fault=RuntimeError, at=None, **kwargs):
    return functools.partial(FailingEnv, where, at, fault, **kwargs)


def at(environment, slot, call):
    """The slot does its fault in its `call`-th call (since it was made)."""
    values = [None] * environment.num_envs
    values[slot] = call
    environment.set_attr("at", values)


def restarting(limit=5):
    return SlotSettings(restart_on_error=RestartPolicy(limit))


def count(environment, slot):
    """Of one slot, also when other processes are gone."""
    child = owner(environment, slot)
    (worker,) = (w for w in environment._workers if w.child is child)
    values = child.call("call", "count", (), {}, True).result()
    return values[slot - worker.slots[0]]


def observe(step):
    return step.observation.tolist()


# Errors


@pytest.mark.parametrize("make", [serial, *BACK_ENDS.values()], ids=["-", *BACK_ENDS])
def test_an_error_in_a_step(make):
    with make(failing(), N, limits=LIMITS) as environment:
        environment.reset()
        at(environment, 1, 3)
        assert [observe(environment.step([1, 2, 3])) for _ in range(2)] == [
            *([1] * 3, [2] * 3)
        ]
        with fails(RuntimeError, "^planned$", 1) as caught:
            environment.step([1, 2, 3])
        cause = str(caught.value.__cause__)
        assert "environment 1 of 3, in step" in cause
        assert "small_environments.py" in cause
        step = environment.step([1, 2, 3])
        assert observe(step) == [4, 0, 4] and step.reward.tolist() == [1, 0, 3]
        step = environment.step([1, 2, 3])
        assert observe(step) == [5, 1, 5] and step.reward.tolist() == [1, 2, 3]
        assert step.info == {}


@every
def test_an_error_in_a_reset(make):
    with make(failing("reset"), N, limits=LIMITS) as environment:
        environment.reset()
        environment.step(zeros(environment))
        at(environment, 1, 2)
        with fails(RuntimeError, "^planned$", 1) as caught:
            environment.reset()
        assert "environment 1 of 3, in reset" in str(caught.value.__cause__)
        assert observe(environment.step(zeros(environment))) == [1, 0, 1]
        assert observe(environment.step(zeros(environment))) == [2, 1, 2]


@every
def test_an_error_in_the_constructor(make):
    before = time.monotonic()
    with fails(OSError, "planned", 0) as caught:
        make(failing("constructor", OSError), N, limits=LIMITS)
    assert "environment 0 of 3, in its constructor" in str(caught.value.__cause__)
    assert time.monotonic() - before < 5.0


def test_errors_in_constructors_name_their_environment():
    good = failing()
    for fault, error, text, index in [
        (KeyError, KeyError, "planned", 1),
        (exit_process, ChildDied, "environment 1 .*exit code 7", None),
        (kill_process, ChildDied, "environment 1 .*SIGKILL", None),
        (leave, ChildFailed, "environment 1: SystemExit: 5", None),
    ]:
        bad = failing("constructor", fault)
        with fails(error, text, index):
            ParallelEnvironment([good, bad, good], limits=LIMITS)
    hasty = ChildLimits(startup_secs=0.5, call_secs=20.0, close_secs=0.2)
    with fails(TimeoutError, "environment 1: no reply to 'start' within 0.5 s", None):
        bad = failing("constructor", hang)
        ParallelEnvironment([good, bad, good], limits=hasty)


@every
def test_errors_and_deaths_in_close_are_quiet(make, capfd):
    for fault in (RuntimeError, exit_process, kill_process):
        with make(failing("close", fault, 1), N, limits=LIMITS) as environment:
            environment.reset()
            processes, before = pids(environment), time.monotonic()
        assert time.monotonic() - before < 5.0
        assert all(is_gone(pid) for pid in processes)
        environment.close()
    assert "Traceback" not in capfd.readouterr().out


def test_hanging_in_close_is_bounded():
    with FEW["parallel"](failing("close", hang, 1), N, limits=IMPATIENT) as environment:
        before = time.monotonic()
    assert time.monotonic() - before < 5.0
    assert all(owner(environment, slot).exitcode is not None for slot in range(N))


@every
def test_several_errors_at_once(make):
    with make(failing(), N, limits=LIMITS) as environment:
        environment.reset()
        environment.set_attr("at", [None, 1, 1])
        with fails(RuntimeError, "planned", 1) as caught:
            environment.step(zeros(environment))
        assert "environment 2 of 3, in step" in str(caught.value.__cause__)
        assert observe(environment.step(zeros(environment))) == [2, 0, 0]


@every
def test_errors_that_do_not_travel(make):
    def raises():
        raise Unpicklable("odd", 1)

    with make(lambda: FailingEnv("step", None, raises), N, limits=LIMITS) as env:
        env.reset()
        at(env, 1, 1)
        with fails(ChildFailed, "Unpicklable: odd 1", 1):
            env.step(zeros(env))
        assert observe(env.step(zeros(env))) == [2, 0, 2]


@every
def test_a_timeout_of_the_environment_is_an_error_like_any_other(make):
    with make(failing(fault=TimeoutError), N, limits=LIMITS) as environment:
        environment.reset()
        at(environment, 1, 1)
        with fails(TimeoutError, "planned", 1):
            environment.step(zeros(environment))
        with pytest.raises(NoAsyncCallError):
            environment.step_wait()
        assert observe(environment.step(zeros(environment))) == [2, 0, 2]


@every
def test_infos_that_do_not_travel(make):
    settings = SlotSettings(keep_infos=True)
    with make(Secretive, N, None, settings, limits=LIMITS) as env:
        env.reset()
        with pytest.raises(TypeError, match="cannot be pickled") as caught:
            env.step([0, 0, 1])
        assert caught.value.environment_index == env._workers[-1].slots[0]
        with pytest.raises(ResetNeeded):
            env.step([0, 0, 0])
        assert env.reset()[0].tolist() == [0, 0, 0]
        assert observe(env.step([0, 0, 0])) == [1, 1, 1]


# Deaths


def first_of(environment, slot):
    """The first slot in the process of this one."""
    (worker,) = (w for w in environment._workers if slot in w.slots)
    return worker.slots[0]


@every
@deaths
@pytest.mark.parametrize("where", ["step", "reset"])
def test_a_process_that_dies(make, fault, text, where):
    with make(failing(where, fault), N, limits=LIMITS) as environment:
        environment.reset()
        environment.step(zeros(environment))
        at(environment, 1, 2)
        first, before = first_of(environment, 1), time.monotonic()
        with fails(ChildDied, f"environment {first} .*{text}", first):
            environment.reset() if where == "reset" else environment.step([0] * N)
        assert time.monotonic() - before < 5.0
        start = 0 if where == "reset" else 2
        assert count(environment, 2) == start
        for number in (1, 2):  # it stays dead, the others stay in step
            with fails(ChildDied, text, first):
                environment.step(zeros(environment))
            assert count(environment, 2) == start + number
        with fails(ChildDied, text, first):
            environment.get_attr("count")
        processes, before = pids(environment), time.monotonic()
    assert time.monotonic() - before < 5.0
    assert all(is_gone(pid) for pid in processes)


@every
def test_killed_from_outside(make):
    with make(CountEnv, N, limits=LIMITS) as environment:
        environment.reset()
        os.kill(owner(environment, 2).pid, signal.SIGKILL)
        first = first_of(environment, 2)
        with fails(ChildDied, rf"environment {first} .*SIGKILL.*-9", first):
            environment.step(zeros(environment))
        with fails(ChildDied, "SIGKILL", first):
            environment.reset()


@every
def test_an_environment_that_leaves_its_process(make):
    with make(failing(fault=leave), N, limits=LIMITS) as environment:
        environment.reset()
        at(environment, 1, 1)
        first = first_of(environment, 1)
        with fails(ChildFailed, f"environment {first}.*SystemExit: 5", first):
            environment.step(zeros(environment))
        with fails(ChildDied, f"environment {first}", first):
            environment.step(zeros(environment))


# What hangs


@every
def test_a_late_step_can_be_waited_for_again(make, tmp_path):
    with make(functools.partial(Waits, tmp_path / "go"), N, limits=LIMITS) as env:
        env.reset()
        env.step_async([0, 1, 0])
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"environment .*'step'.* 0\.1 s"):
                env.step_wait(0.1)
        with pytest.raises(TimeoutError):
            env.reset(timeout=0.1)
        (tmp_path / "go").touch()
        step = env.step_wait()
        assert observe(step) == [1, 1, 1] and step.reward.tolist() == [0, 1, 0]
        assert observe(env.step([0, 0, 0])) == [2, 2, 2]


@every
def test_what_hangs_is_named_and_closed(make):
    with make(failing(fault=hang), N, limits=IMPATIENT) as environment:
        environment.reset()
        at(environment, 2, 1)
        first, before = first_of(environment, 2), time.monotonic()
        with pytest.raises(TimeoutError, match=f"environment {first}.*0.5 s"):
            environment.step(zeros(environment))
        assert time.monotonic() - before < 5.0
        processes, before = pids(environment), time.monotonic()
    assert time.monotonic() - before < 5.0
    assert all(is_gone(pid) for pid in processes)


def test_a_late_reset_must_be_done_again(tmp_path):
    factory = failing("reset", functools.partial(hang, 0.6))
    with FEW["parallel"](factory, N, limits=LIMITS) as environment:
        environment.reset()
        at(environment, 1, 2)
        with pytest.raises(TimeoutError, match=r"environment 1: .*'reset'.*0\.1 s"):
            environment.reset(timeout=0.1)
        with pytest.raises(ResetNeeded):
            environment.step(zeros(environment))
        environment.reset()
        assert observe(environment.step(zeros(environment))) == [1, 1, 1]


# Restarts

FAULTS = {
    "raises": RuntimeError,
    "exits": exit_process,
    "dies": kill_process,
    "hangs": hang,
    "leaves": leave,
}


@every
@pytest.mark.parametrize("kind", FAULTS)
def test_restart(make, kind):
    """The last observation again, truncated, reward 0; then the slots of the fault are
    reset, and only they, with other seeds."""
    factory = failing(fault=FAULTS[kind])
    limits = IMPATIENT if kind == "hangs" else LIMITS
    with make(factory, N, SEEDS, restarting(), limits=limits) as environment:
        environment.reset()
        at(environment, 1, 3)
        for _ in range(2):
            environment.step([1, 2, 3])
        hit = [slot == 1 for slot in range(N)]
        if kind != "raises":
            hit = [slot in owner_slots(environment, 1) for slot in range(N)]
        step = environment.step([1, 2, 3])
        assert observe(step) == [2 if one else 3 for one in hit]
        assert step.truncated.tolist() == hit and not step.terminated.any()
        assert step.reward.tolist() == [
            0 if one else slot + 1 for slot, one in enumerate(hit)
        ]
        assert step.info["restarted"].tolist() == hit
        assert set(step.info) == {"restarted"}  # no real episode has ended
        assert environment.num_restarts == sum(hit)
        after = environment.step([1, 2, 3])
        assert observe(after) == [0 if one else 4 for one in hit]
        assert not (after.truncated | after.terminated).any() and after.info == {}
        assert after.reward.tolist() == step.reward.tolist()
        seeds = environment.get_attr("np_random_seed")
        assert seeds == [SEEDS.of(slot, int(one)) for slot, one in enumerate(hit)]
        assert SEEDS.of(1, 1) != SEEDS.of(1)
        last = environment.step([1, 2, 3])
        assert observe(last) == [1 if one else 5 for one in hit]
        assert last.reward.tolist() == [1, 2, 3]


def owner_slots(environment, slot):
    return next(w.slots for w in environment._workers if slot in w.slots)


@every
def test_sums_of_an_interrupted_episode_begin_anew(make):
    factory = failing(fault=kill_process, max_count=3)
    with make(factory, N, None, restarting(), limits=LIMITS) as environment:
        environment.reset()
        at(environment, 1, 2)
        steps = [environment.step([1, 1, 1]) for _ in range(7)]
    hit = {0: False, 1: True, 2: False}
    for slot in hit:
        ended = [i for i, step in enumerate(steps) if step.terminated[slot]]
        cut = [i for i, step in enumerate(steps) if step.truncated[slot]]
        assert (ended, cut) in (([2, 6], []), ([5], [1]))
        assert slot != 1 or cut
        for index in ended:
            info = steps[index].info
            assert info["_episode_return"][slot] and info["episode_return"][slot] == 3
            assert info["episode_length"][slot] == 3


@every
@deaths
def test_a_spent_budget(make, fault, text):
    with make(failing(fault=fault), N, None, restarting(1), limits=LIMITS) as env:
        env.reset()
        at(env, 1, 1)
        first = first_of(env, 1)
        assert env.step(zeros(env)).truncated[1]
        env.step(zeros(env))
        at(env, 1, 1)
        with fails(ChildDied, text, first):
            env.step(zeros(env))


def test_a_spent_budget_of_a_hanging_one():
    """It is late as if there were no restarts: the step stays pending."""
    factory = failing(fault=functools.partial(hang, 1.0))
    with FEW["parallel"](factory, N, None, restarting(1), limits=IMPATIENT) as env:
        env.reset()
        at(env, 1, 1)
        assert env.step(zeros(env)).truncated.tolist() == [False, True, False]
        env.step(zeros(env))
        at(env, 1, 1)
        with pytest.raises(TimeoutError, match="environment 1: no reply to 'step'"):
            env.step(zeros(env))
        step = env.step_wait(10.0)
        assert observe(step) == [3, 1, 3] and step.info == {}


def test_a_budget_spent_on_one_of_two_that_hang():
    """The wait can be repeated, and nothing is paid for or counted twice."""
    factory = failing(fault=functools.partial(hang, 1.0))
    with FEW["parallel"](factory, 2, None, restarting(1), limits=IMPATIENT) as env:
        env.reset()
        env.set_attr("at", [1, 1])
        with pytest.raises(TimeoutError, match="environment 1: no reply to 'step'"):
            env.step([1, 1])
        step = env.step_wait(10.0)
        assert observe(step) == [1, 1] and env.num_restarts == 0


@deaths
def test_a_worker_that_dies_while_one_of_its_slots_is_reset(fault, text):
    """Slot 0 has just been reset: the reset is done again and nothing is cut."""
    factory = failing(fault=fault)
    with FEW["shared, 2 each"](
        factory, 3, SEEDS, restarting(), limits=LIMITS
    ) as environment:
        environment.reset()
        at(environment, 1, 3)
        environment.set_attr("max_count", [2, STEPS, STEPS])
        steps = [environment.step([1, 1, 1]) for _ in range(2)]
        assert steps[-1].terminated.tolist() == [True, False, False]
        assert steps[-1].info["episode_length"].tolist() == [2, 0, 0]
        step = environment.step([1, 1, 1])
        assert observe(step) == [0, 2, 3] and step.reward.tolist() == [0, 0, 1]
        assert step.truncated.tolist() == [False, True, False]
        assert not step.terminated.any()
        assert step.info["restarted"].tolist() == [True, True, False]
        step = environment.step([1, 1, 1])
        assert observe(step) == [1, 0, 4] and step.reward.tolist() == [1, 0, 1]
        seeds = environment.get_attr("np_random_seed")
        assert seeds == [SEEDS.of(0, 1), SEEDS.of(1, 1), SEEDS.of(2)]


def test_no_seed_is_used_twice():
    """An environment that was made anew in its process, then lost with it."""
    with BACK_ENDS["shared, 1 each"](
        failing(), 2, SEEDS, restarting(), limits=LIMITS
    ) as environment:
        environment.reset()
        at(environment, 1, 1)
        environment.step([0, 0])
        environment.step([0, 0])
        assert environment.get_attr("np_random_seed")[1] == SEEDS.of(1, 1)
        os.kill(owner(environment, 1).pid, signal.SIGKILL)
        assert environment.step([0, 0]).truncated.tolist() == [False, True]
        environment.step([0, 0])
        assert environment.get_attr("np_random_seed") == [SEEDS.of(0), SEEDS.of(1, 2)]
        assert environment.num_restarts == 2


@every
def test_a_lost_process_is_replaced_by_a_reset_too(make):
    with make(CountEnv, N, SEEDS, restarting(1), limits=LIMITS) as environment:
        environment.reset()
        environment.step(zeros(environment))
        slots = list(owner_slots(environment, 2))
        os.kill(owner(environment, 2).pid, signal.SIGKILL)
        observation, info = environment.reset([5, 6, 7])
        assert observation.tolist() == [0, 0, 0]
        assert np.flatnonzero(info["restarted"]).tolist() == slots
        assert environment.get_attr("np_random_seed") == [5, 6, 7]
        step = environment.step(zeros(environment))
        assert observe(step) == [1, 1, 1] and step.info == {}
        os.kill(owner(environment, 2).pid, signal.SIGKILL)
        with fails(ChildDied, "SIGKILL", slots[0]):
            environment.reset()


@pytest.mark.parametrize("steps_before", [1, 3])
def test_a_process_lost_in_a_reset_of_one_of_its_slots(steps_before):
    """Its other slot cannot be kept: it is reset too, whether it had ended or not."""
    factory, make = functools.partial(CountEnv, 3), FEW["shared, 2 each"]
    with make(factory, 3, None, restarting(1), limits=LIMITS) as environment:
        environment.reset()
        for _ in range(steps_before):
            environment.step([1, 1, 1])
        os.kill(owner(environment, 0).pid, signal.SIGKILL)
        mask = np.array([True, False, False])
        observation, info = environment.reset(options={"reset_mask": mask})
        assert observation.tolist() == [0, 0, steps_before]
        assert info["restarted"].tolist() == [True, True, False]
        steps = [environment.step([1, 1, 1]) for _ in range(3)]
    assert steps[-1].terminated.tolist() == [True, True, False]
    assert steps[-1].info["episode_length"].tolist() == [3, 3, 0]
    assert steps[-1].info["episode_return"].tolist() == [3, 3, 0]


@every
def test_a_constructor_that_fails_again(make, tmp_path):
    """Each attempt costs one of the budget."""

    def made():
        if (tmp_path / "broken").exists():
            raise OSError("planned")
        return FailingEnv(at=None)

    with make(made, N, None, restarting(3), limits=LIMITS) as environment:
        environment.reset()
        (tmp_path / "broken").touch()
        first = first_of(environment, 2)
        os.kill(owner(environment, 2).pid, signal.SIGKILL)
        with fails(OSError, "planned", first):
            environment.step(zeros(environment))
        assert count(environment, 0) == 1 or first == 0
