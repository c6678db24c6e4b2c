"""Which call may come when: Gymnasium's errors for all others (V-10)."""

import functools

import numpy as np
import pytest
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeeded,
)
from gymnasium.vector import SyncVectorEnv
from small_environments import CountEnv, FailingEnv

from distrl.environments.gymnasium_vector_environment import (
    GymnasiumVectorEnvironment,
)
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.vector_environment import VectorEnvironment, VectorStep

ZEROS = np.zeros(2, np.int64)
counting = functools.partial(CountEnv, render_mode="rgb_array")
BACK_ENDS = {
    "serial": lambda: SerialVectorEnvironment(counting, 2),
    "gymnasium": lambda: GymnasiumVectorEnvironment(SyncVectorEnv([counting] * 2)),
}
CALLS = {
    "reset": lambda environment: environment.reset(),
    "step": lambda environment: environment.step(ZEROS),
    "step_async": lambda environment: environment.step_async(ZEROS),
    "step_wait": lambda environment: environment.step_wait(),
    "call": lambda environment: environment.call("add", 1),
    "get_attr": lambda environment: environment.get_attr("count"),
    "set_attr": lambda environment: environment.set_attr("count", 1),
    "render": lambda environment: environment.render(),
}


@pytest.fixture(params=BACK_ENDS)
def environment(request):
    with BACK_ENDS[request.param]() as environment:
        yield environment


def test_step_before_reset(environment):
    for name in ("step", "step_async"):
        with pytest.raises(ResetNeeded, match="before the first reset"):
            CALLS[name](environment)
    environment.reset()
    assert environment.step(ZEROS).observation.tolist() == [1, 1]


def test_wait_without_step(environment):
    with pytest.raises(NoAsyncCallError) as caught:
        environment.step_wait()
    assert caught.value.name == "step"
    environment.reset()
    with pytest.raises(NoAsyncCallError):
        environment.step_wait()
    environment.step(ZEROS)
    with pytest.raises(NoAsyncCallError):  # a step leaves nothing to wait for
        environment.step_wait()


def test_only_one_step_at_a_time(environment):
    environment.reset()
    environment.step_async(ZEROS)
    for name in ("step", "step_async", "call", "get_attr", "set_attr", "render"):
        with pytest.raises(AlreadyPendingCallError, match=r"while a step is pending"):
            CALLS[name](environment)
    assert environment.step_wait().observation.tolist() == [1, 1]  # exactly one
    assert environment.step(ZEROS).observation.tolist() == [2, 2]


def test_reset_drops_a_pending_step(environment):
    environment.reset()
    environment.step(ZEROS)
    environment.step_async(ZEROS)
    assert environment.reset()[0].tolist() == [0, 0]
    with pytest.raises(NoAsyncCallError):
        environment.step_wait()
    steps = [environment.step(ZEROS) for _ in range(3)]
    assert [step.observation.tolist() for step in steps] == [[1, 1], [2, 2], [3, 3]]
    assert steps[2].info["episode_length"].tolist() == [3, 3]


def test_actions_that_do_not_fit_leave_no_step_behind(environment):
    environment.reset()
    for actions in (np.zeros(1, np.int64), np.zeros(3, np.int64)):
        with pytest.raises(ValueError, match=f"2 actions, got {len(actions)}"):
            environment.step_async(actions)
        with pytest.raises(NoAsyncCallError):
            environment.step_wait()
    assert environment.step(ZEROS).observation.tolist() == [1, 1]  # nobody stepped


@pytest.mark.parametrize("pending", [False, True])
def test_closed(environment, pending):
    environment.reset()
    if pending:
        environment.step_async(ZEROS)
    environment.close()
    for name, call in CALLS.items():
        with pytest.raises(ClosedEnvironmentError, match=f"^{name.split('_')[0]}"):
            call(environment)
    environment.close()


def test_close_before_anything_else(environment):
    environment.close()
    with pytest.raises(ClosedEnvironmentError):
        environment.reset()


def test_with_closes_behind_an_error_too():
    inner = SerialVectorEnvironment(CountEnv, 2)
    made = inner._slots.environments
    with pytest.raises(KeyError, match="user"), inner:
        raise KeyError("user")
    assert [one.closed for one in made] == [1, 1]


def test_seeds_that_do_not_fit_reset_nobody(environment):
    environment.reset()
    environment.step(ZEROS)
    with pytest.raises(ValueError, match=r"expected 2 seeds, got 3: \[1, 2, 3\]"):
        environment.reset(seed=[1, 2, 3])
    assert environment.step(ZEROS).observation.tolist() == [2, 2]


class Slow(VectorEnvironment):
    """The least that a back-end must do; its steps take `tries` calls."""

    num_envs = 1

    def __init__(self, tries):
        self.tries, self.timeouts, self.error = tries, [], None

    def _reset(self, seeds, options, timeout):
        return np.zeros(1), {"seeds": seeds, "timeout": timeout}

    def _start_step(self, actions):
        self.left = self.tries

    def _finish_step(self, timeout):
        self.timeouts.append(timeout)
        self.left -= 1
        if self.left > 0:
            raise TimeoutError(f"{timeout} s")
        if self.error is not None:
            raise self.error
        return VectorStep(np.ones(1), np.zeros(1), np.zeros(1), np.zeros(1), {})

    def _call(self, name, args, kwargs, attribute=False):
        return [None]

    def _set_attr(self, name, values):
        pass

    def _close(self):
        pass


def test_a_step_is_pending_until_it_has_ended():
    environment = Slow(3)
    environment.reset()
    environment.step_async(ZEROS)
    for _ in range(2):
        with pytest.raises(TimeoutError, match=r"0\.5 s"):
            environment.step_wait(0.5)
        with pytest.raises(AlreadyPendingCallError):
            environment.step_async(ZEROS)
    assert environment.step_wait(1.5).observation == 1
    assert environment.timeouts == [0.5, 0.5, 1.5]
    with pytest.raises(NoAsyncCallError):
        environment.step_wait()


def test_reset_waits_for_the_pending_step_no_longer_than_it_may():
    environment = Slow(2)
    environment.reset()
    environment.step_async(ZEROS)
    with pytest.raises(TimeoutError):
        environment.reset(timeout=0.25)
    assert environment.timeouts == [0.25]
    _, info = environment.reset(seed=3, timeout=0.25)
    assert info == {"seeds": [3], "timeout": 0.25}


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()])
def test_a_step_that_failed_is_no_longer_pending(error):
    environment = Slow(1)
    environment.reset()
    environment.error = error
    with pytest.raises(type(error)):
        environment.step(ZEROS)
    environment.error = None
    assert environment.step(ZEROS).observation == 1


def test_fault_of_a_dropped_step_is_told_once():
    environment = SerialVectorEnvironment(functools.partial(FailingEnv, at=1), 2)
    environment.reset()
    environment.step_async(ZEROS)
    with pytest.raises(RuntimeError, match="planned"):
        environment.reset()
    assert environment.reset()[0].tolist() == [0, 0]
    assert environment.step(ZEROS).observation.tolist() == [1, 1]
