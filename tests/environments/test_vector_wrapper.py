import functools

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeeded,
)
from nested_environment import NestedEnv, nested_space
from small_environments import CountEnv, FailingEnv
from small_vectors import SEEDS, by_gymnasium, native, serial, shared, steps

from distrl.core.specs import ArraySpec
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.spaces import space_spec
from distrl.environments.spec_spaces import spec_space
from distrl.environments.vector_wrapper import VectorWrapper

BACK_ENDS = pytest.mark.parametrize("back_end", [serial, shared, by_gymnasium])


@BACK_ENDS
@pytest.mark.timeout(60)
def test_changes_nothing(back_end):
    with back_end(NestedEnv) as alone, VectorWrapper(back_end(NestedEnv)) as wrapper:
        assert wrapper.spec == alone.spec
        assert wrapper.observation_space == alone.observation_space
        assert wrapper.autoreset_mode == alone.autoreset_mode
        np.testing.assert_equal(steps(wrapper, 40), steps(alone, 40))


def test_of_a_native_environment():
    with native() as alone, VectorWrapper(native()) as wrapper:
        np.testing.assert_equal(steps(wrapper, 40), steps(alone, 40))


@BACK_ENDS
@pytest.mark.timeout(60)
def test_hands_on_calls_and_attributes(back_end):
    make = functools.partial(CountEnv, render_mode="rgb_array")
    with VectorWrapper(back_end(make)) as wrapper:
        wrapper.reset()
        wrapper.step(np.array([1, 2]))
        assert wrapper.call("add", 5, twice=True) == [11, 11]
        wrapper.set_attr("count", [7, 8])
        assert wrapper.get_attr("count") == [7, 8]
        np.testing.assert_array_equal(wrapper.render()[:, 0, 0, 0], [7, 8])
        assert VectorWrapper(wrapper).unwrapped is wrapper.environment
        assert wrapper.num_restarts == 0


def test_order_of_calls():
    wrapper = VectorWrapper(serial())
    with pytest.raises(ResetNeeded):
        wrapper.step(np.zeros(2, int))
    wrapper.reset()
    with pytest.raises(NoAsyncCallError):
        wrapper.step_wait()
    wrapper.step_async(np.zeros(2, int))
    for call in (wrapper.render, lambda: wrapper.get_attr("count")):
        with pytest.raises(AlreadyPendingCallError):
            call()
    observation, _ = wrapper.reset()  # drops the step
    np.testing.assert_array_equal(observation, [0, 0])
    with pytest.raises(ValueError, match="2 actions, got 3"):
        wrapper.step(np.zeros(3, int))
    assert wrapper.step(np.ones(2, int)).observation.tolist() == [1, 1]
    wrapper.close()
    wrapper.close()
    assert wrapper.environment._closed
    with pytest.raises(ClosedEnvironmentError):
        wrapper.reset()


class Slow(SerialVectorEnvironment):
    """Takes three waits a step, the first two of which time out."""

    waits = 0

    def _finish_step(self, timeout):
        self.waits += 1
        if self.waits % 3:
            raise TimeoutError("not yet")
        return super()._finish_step(timeout)


class Losses(VectorWrapper):
    num_lost = 0

    def _lost(self):
        self.num_lost += 1


def test_waits_again_behind_a_timeout():
    wrapper = Losses(VectorWrapper(Slow(CountEnv, 2, SEEDS)))
    wrapper.reset()
    for number in (1, 2):
        wrapper.step_async(np.zeros(2, int))
        for _ in range(2):
            with pytest.raises(TimeoutError):
                wrapper.step_wait(timeout=0.01)
        assert wrapper.step_wait().observation.tolist() == [number] * 2
    assert wrapper.num_lost == 0


def test_goes_on_behind_an_error():
    wrapper = Losses(VectorWrapper(serial(FailingEnv)))
    wrapper.reset()
    wrapper.set_attr("at", [None, 2])
    wrapper.step(np.zeros(2, int))
    with pytest.raises(RuntimeError, match="planned"):
        wrapper.step(np.zeros(2, int))
    assert wrapper.num_lost == 1
    assert wrapper.step(np.zeros(2, int)).observation.tolist() == [3, 0]
    with pytest.raises(ValueError, match="reset_mask"):
        wrapper.reset(options={"reset_mask": [True]})
    assert wrapper.num_lost == 1


def test_refuses_what_is_no_vector_environment():
    with pytest.raises(TypeError, match="expected a VectorEnvironment, got .*Count"):
        VectorWrapper(CountEnv())


def test_space_of_a_spec():
    spec = space_spec(nested_space())
    space = spec_space(spec)
    assert space_spec(space) == spec
    bits = spec_space(ArraySpec((2,), "bool"))
    assert bits.dtype == bool and not bits.low.any() and bits.high.all()
    words = spec_space(ArraySpec((), "int16"))
    assert words == spaces.Box(-(2**15), 2**15 - 1, (), np.int16)
    # infinities stay infinite, in float64 too
    assert np.isneginf(spec_space(ArraySpec((1,), "float64")).low).all()
