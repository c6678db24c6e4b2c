"""Faults of environments without restarts: the others never notice."""

import functools

import numpy as np
import pytest
from failing_slots import (
    ONES,
    SEEDS,
    Shows,
    arrays_of,
    failing_in_slot_1,
    in_turn,
    raising,
)
from gymnasium import spaces
from small_environments import CountEnv, FailingEnv, SeededEnv

from distrl.core.errors import ConfigError
from distrl.environments.faults import EnvironmentFault
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.slots import Slots


def test_a_fault_in_a_step_keeps_the_others_exact():
    environment = failing_in_slot_1(at=3)
    environment.reset()
    for _ in range(2):
        environment.step(ONES)
    with pytest.raises(RuntimeError, match="^planned$") as caught:
        environment.step(ONES)
    assert caught.value.environment_index == 1
    assert isinstance(caught.value.__cause__, EnvironmentFault)
    assert "environment 1 of 3, in step" in str(caught.value.__cause__)
    step = environment.step(ONES)
    assert step.observation.tolist() == [4, 0, 4]
    assert step.reward.tolist() == [1, 0, 1]
    assert not step.terminated.any() and not step.truncated.any() and not step.info
    assert environment.step(ONES).observation.tolist() == [5, 1, 5]
    assert environment.num_restarts == 0


def test_totals_of_the_others_go_on_behind_a_fault():
    environment = SerialVectorEnvironment(
        lambda: FailingEnv(at=None, max_count=4), 2, SEEDS
    )
    environment.reset()
    environment.set_attr("at", [None, 2])
    environment.step([1, 1])
    with pytest.raises(RuntimeError):
        environment.step([1, 1])
    steps = [environment.step([1, 1]) for _ in range(5)]
    assert steps[1].info["episode_return"].tolist() == [4, 0]
    assert steps[1].info["episode_length"].tolist() == [4, 0]
    assert steps[4].info["episode_return"].tolist() == [0, 4]
    assert steps[4].info["episode_length"].tolist() == [0, 4]


@pytest.mark.parametrize("when", ["first", "later", "in a step"])
def test_a_fault_in_a_reset_keeps_the_others_exact(when):
    environment = failing_in_slot_1(at=None, where="reset")
    if when != "first":
        environment.reset()
    environment.set_attr("at", [None, 1 if when == "first" else 2, None])
    if when == "in a step":
        environment.set_attr("max_count", [100, 1, 100])
        assert environment.step(ONES).terminated.tolist() == [False, True, False]
        with pytest.raises(RuntimeError, match="planned") as caught:
            environment.step(ONES)
        assert environment.step(ONES).observation.tolist() == [3, 0, 3]
    else:
        with pytest.raises(RuntimeError, match="planned") as caught:
            environment.reset()
        if when == "first":
            environment.reset()
            assert environment.step(ONES).observation.tolist() == [1, 1, 1]
        else:
            assert environment.step(ONES).observation.tolist() == [1, 0, 1]
    assert caught.value.environment_index == 1
    assert "environment 1 of 3, in reset" in str(caught.value.__cause__)


def test_two_faults_at_once_are_both_told():
    environment = failing_in_slot_1(at=None)
    environment.reset()
    environment.set_attr("at", [None, 1, 1])
    environment.set_attr("fault", [None, KeyError("one"), OSError("two")])
    with pytest.raises(KeyError, match="one") as caught:
        environment.step(ONES)
    text = str(caught.value.__cause__)
    assert "environment 1 of 3" in text and "environment 2 of 3" in text
    assert "two" in text
    assert environment.step(ONES).observation.tolist() == [2, 0, 0]


def test_the_stream_goes_on_behind_a_fault():
    """Without a restart the environment keeps its random stream."""
    environment = SerialVectorEnvironment(SeededEnv, 1, SEEDS)
    environment.reset()
    inner = environment._slots.environments[0]
    before = inner.np_random
    inner._show = None  # breaks it
    with pytest.raises(TypeError):
        environment.step([0])
    del inner._show
    environment.step([0])
    assert inner.np_random is before and inner.first_seed == SEEDS.of(0)


def test_a_failing_factory_closes_what_was_made():
    made = CountEnv()
    with pytest.raises(OSError, match="^no licence$") as caught:
        SerialVectorEnvironment(in_turn(lambda: made, raising), 2)
    assert caught.value.environment_index == 1
    cause = caught.value.__cause__
    assert isinstance(cause, EnvironmentFault)
    assert "environment 1 of 2, in its constructor" in str(cause)
    assert "in raising" in str(cause)  # the traceback
    assert made.closed == 1


def test_config_errors_of_a_factory_pass_unchanged():
    def factory():
        raise ConfigError("no such game")

    with pytest.raises(ConfigError, match="^no such game$"):
        SerialVectorEnvironment(factory, 2)


def test_environments_must_be_alike():
    made, other = CountEnv(), Shows(spaces.Discrete(3))
    with pytest.raises(ValueError, match=r"environment 1 differs.*maximum=2"):
        SerialVectorEnvironment(in_turn(lambda: made, lambda: other), 2)
    assert made.closed and other.closed


def test_unsupported_spaces_are_named_and_closed():
    other = Shows(spaces.Text(3))
    with pytest.raises(ConfigError, match="Text"):
        SerialVectorEnvironment(lambda: other, 1)
    assert other.closed


def test_every_environment_is_closed_though_one_fails():
    made = [FailingEnv("close", at) for at in (None, 1, 1, None)]
    made[1].fault, made[2].fault = OSError("first"), KeyError("second")
    slots = Slots([functools.partial(next, iter(made))] * 4, first=8, total=16)
    with pytest.raises(OSError, match="^first$") as caught:
        slots.close()
    assert caught.value.environment_index == 9
    assert "environment 9 of 16, in close" in str(caught.value.__cause__)
    assert [made[0].closed, made[3].closed] == [1, 1] and made[2].calls == 1
    slots.close()


def test_indices_are_those_of_the_whole():
    slots = Slots([functools.partial(FailingEnv, at=1)] * 2, first=4, total=6)
    arrays = arrays_of(2)
    assert slots.reset(None, None, arrays) is None
    report = slots.step(slots.split(np.zeros(2, np.int64)), arrays)
    assert {slot: fault.slot for slot, fault in report.faults.items()} == {0: 4, 1: 5}
    assert report.faults[1].text.startswith("environment 5 of 6, in step:")


def test_a_wrong_observation_is_a_fault_of_that_slot():
    environment = failing_in_slot_1(at=None)
    environment.reset()
    environment._slots._steps[1] = lambda action: ("text", 1.0, True, False, {})
    with pytest.raises(ValueError, match="environment 1 of 3: observation.*int64"):
        environment.step(ONES)
    environment._slots._steps[1] = environment._slots.environments[1].step
    step = environment.step(ONES)
    assert step.observation.tolist() == [2, 0, 2] and not step.terminated.any()


def test_call_reaches_all_and_raises_the_first_error():
    called = []

    class Named(CountEnv):
        def name(self, error=None):
            called.append(self)
            if error is not None and self.max_count > 1:
                raise error(f"{self.max_count}")
            return self.max_count

    slots = Slots([functools.partial(Named, count) for count in (1, 2, 3)])
    assert slots.call("name", (), {}) == [1, 2, 3]
    with pytest.raises(LookupError, match="^2$") as caught:
        slots.call("name", (), {"error": LookupError})
    assert caught.value.environment_index == 1 and len(called) == 6
    assert "in name" in str(caught.value.__cause__)
