"""Environments that are made anew behind an error."""

import functools

import pytest
from failing_slots import (
    ONES,
    SEEDS,
    Shows,
    arrays_of,
    failing_in_slot_1,
    in_turn,
    raising,
    restarting,
)
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from small_environments import CountEnv, FailingEnv

from distrl.environments.restarts import RestartBudget, RestartPolicy
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.slot_records import SlotSettings
from distrl.environments.slots import Slots


def test_an_interrupted_episode():
    """The last observation again, truncated, reward 0, and no episode is told."""
    environment = failing_in_slot_1(at=3, limit=1)
    first = environment._slots.environments[1]
    environment.reset()
    before = [environment.step(ONES) for _ in range(2)]
    step = environment.step(ONES)
    assert step.observation.tolist() == [3, 2, 3]
    assert step.reward.tolist() == [1, 0, 1]
    assert step.truncated.tolist() == [False, True, False]
    assert not step.terminated.any()
    assert list(step.info) == ["restarted"]
    assert step.info["restarted"].tolist() == [False, True, False]
    assert environment.num_restarts == 1 and first.closed == 1
    assert before[1].observation.tolist() == [2, 2, 2]  # not written again
    step = environment.step(ONES)
    assert step.observation.tolist() == [4, 0, 4] and step.reward.tolist() == [1, 0, 1]
    assert not step.truncated.any() and not step.info
    environment.set_attr("max_count", [5, 2, 100])
    steps = [environment.step(ONES) for _ in range(2)]
    assert steps[0].info["episode_length"].tolist() == [5, 0, 0]
    assert steps[1].info["episode_length"].tolist() == [0, 2, 0]
    assert steps[1].info["episode_return"].tolist() == [0, 2, 0]


def test_nothing_of_the_step_that_failed_is_told():
    environment = failing_in_slot_1(at=None, limit=1)
    environment.reset()
    environment.step(ONES)
    environment._slots._steps[1] = lambda action: ("text", 5.0, True, False, {})
    step = environment.step(ONES)
    assert step.observation.tolist() == [2, 1, 2] and step.reward.tolist() == [1, 0, 1]
    assert step.truncated.tolist() == [False, True, False]
    assert not step.terminated.any() and list(step.info) == ["restarted"]


def test_a_spent_budget_raises_the_next_error():
    environment = failing_in_slot_1(at=2, limit=2)
    environment.reset()
    truncated = [bool(environment.step(ONES).truncated[1]) for _ in range(5)]
    assert truncated == [False, True, False, False, True]
    for _ in range(2):
        environment.step(ONES)
    with pytest.raises(RuntimeError, match="planned") as caught:
        environment.step(ONES)
    assert caught.value.environment_index == 1 and environment.num_restarts == 2
    assert environment.step(ONES).observation.tolist() == [9, 0, 9]


def test_the_budget_comes_back_with_time():
    now = [0.0]
    environment = failing_in_slot_1(at=1, limit=1)
    policy = RestartPolicy(1, window_secs=10.0)
    environment._slots._budget = RestartBudget(policy, lambda: now[0])
    environment.reset()
    assert environment.step(ONES).truncated[1]
    environment.step(ONES)  # reset
    now[0] = 9.9
    with pytest.raises(RuntimeError, match="planned"):
        environment.step(ONES)
    # The environment failed in its first step, and does not in its second.
    assert environment.step(ONES).observation[1] == 0
    assert environment.step(ONES).observation[1] == 1
    environment.set_attr("at", [None, 3, None])
    now[0] = 10.0
    assert environment.step(ONES).truncated[1]
    assert environment.num_restarts == 2


def test_budget_is_a_sliding_window():
    now = [0.0]
    budget = RestartBudget(RestartPolicy(2, 10.0), lambda: now[0])
    allowed = []
    for now[0] in (0.0, 4.0, 5.0, 9.99, 10.0, 13.9, 14.0, 19.9, 20.0):
        allowed.append(budget.spend())
    assert allowed == [True, True, False, False, True, False, True, False, True]
    assert not RestartBudget(RestartPolicy(0)).spend()


@pytest.mark.parametrize("limit, window", [(-1, 1.0), (1, 0.0), (1, float("nan"))])
def test_policies_that_make_no_sense(limit, window):
    with pytest.raises(ValueError, match=f"limit={limit}.*window_secs={window}"):
        RestartPolicy(limit, window)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_restarts_need_next_step_mode(mode):
    with pytest.raises(ValueError, match=f"NEXT_STEP mode, got.*{mode.name}"):
        SlotSettings(mode, restart_on_error=RestartPolicy(1))
    SlotSettings(mode)


class FailingSeeded(FailingEnv):
    """Remembers the seed of its own."""

    def reset(self, *, seed=None, options=None):
        self.first_seed = getattr(self, "first_seed", seed)
        return super().reset(seed=seed, options=options)


def test_restarted_environments_have_seeds_of_their_own():
    environment = SerialVectorEnvironment(
        lambda: FailingSeeded(at=1), 2, SEEDS, restarting(4)
    )
    environment.reset()
    seen = [environment.get_attr("first_seed")]
    for _ in range(2):
        assert environment.step([0, 0]).truncated.all()
        environment.step([0, 0])  # resets
        seen.append(environment.get_attr("first_seed"))
    assert seen == [
        [SEEDS.of(slot, restart) for slot in (0, 1)] for restart in (0, 1, 2)
    ]
    assert len({seed for row in seen for seed in row}) == 6
    action_spaces = environment.get_attr("action_space")
    assert len({int(space.np_random.integers(2**40)) for space in action_spaces}) == 2


def test_restart_seeds_count_on_from_what_they_are_told():
    """A worker that is started again continues the numbers of its predecessor."""
    slots = Slots([lambda: FailingSeeded(at=1)], restarting(1), SEEDS, restart=5)
    arrays = arrays_of(1)
    slots.reset(None, None, arrays)
    assert slots.environments[0].first_seed == SEEDS.of(0, 5)
    slots.step([0], arrays), slots.step([0], arrays)
    assert slots.environments[0].first_seed == SEEDS.of(0, 6)


@pytest.mark.parametrize("first", [True, False])
def test_a_restart_within_a_reset_is_tried_at_once_and_cuts_nothing(first):
    """The first observation of the new environment is what the reset shows."""
    environment = failing_in_slot_1(at=None, where="reset", limit=1)
    if first:
        environment.set_attr("at", [None, 1, None])
        environment._slots._factories = [CountEnv] * 3
        observation, info = environment.reset()
        assert observation.tolist() == [0, 0, 0]
    else:
        environment.reset()
        environment.set_attr("at", [None, 2, None])
        environment.set_attr("max_count", [100, 1, 100])
        environment._slots._factories = [CountEnv] * 3
        assert environment.step(ONES).info["episode_length"].tolist() == [0, 1, 0]
        observation, reward, terminated, truncated, info = environment.step(ONES)
        assert observation.tolist() == [2, 0, 2] and reward.tolist() == [1, 0, 1]
        assert not terminated.any() and not truncated.any()
    assert info["restarted"].tolist() == [False, True, False]
    assert environment.num_restarts == 1
    assert type(environment._slots.environments[1]) is CountEnv
    step = environment.step(ONES)
    assert step.observation[1] == 1 and step.reward[1] == 1 and not step.info


def test_a_factory_that_raises_at_a_restart_costs_attempts():
    environment = failing_in_slot_1(at=2, limit=3)
    environment._slots._factories = [
        CountEnv,
        in_turn(raising, raising, functools.partial(FailingEnv, at=None)),
        CountEnv,
    ]
    environment.reset()
    environment.step(ONES)
    step = environment.step(ONES)
    assert step.truncated.tolist() == [False, True, False]
    assert environment.num_restarts == 3
    assert environment.step(ONES).observation.tolist() == [3, 0, 3]
    seed = environment._slots.environments[1]._seed
    assert seed == SEEDS.of(1, 3)  # each attempt has its own


def test_a_factory_that_never_works_again():
    environment = failing_in_slot_1(at=2, limit=3)
    environment._slots._factories = [CountEnv, raising, CountEnv]
    environment.reset()
    environment.step(ONES)
    with pytest.raises(RuntimeError, match="planned"):  # the error that began it
        environment.step(ONES)
    assert environment.num_restarts == 3
    environment.step(ONES)
    assert environment.step(ONES).observation[[0, 2]].tolist() == [4, 4]


def test_an_environment_that_comes_back_different_is_not_taken():
    other = Shows(spaces.Discrete(3))
    environment = failing_in_slot_1(at=2, limit=2)
    environment._slots._factories = [
        CountEnv,
        in_turn(lambda: other, CountEnv),
        CountEnv,
    ]
    environment.reset()
    environment.step(ONES)
    assert environment.step(ONES).truncated[1]
    assert environment.num_restarts == 2 and other.closed
    assert environment.step(ONES).observation.tolist() == [3, 0, 3]


def test_an_environment_that_cannot_be_closed_is_replaced_all_the_same():
    class Stuck(FailingEnv):
        def close(self):
            raise OSError("stuck")

    environment = SerialVectorEnvironment(
        in_turn(lambda: Stuck(at=1), CountEnv), 1, settings=restarting(1)
    )
    environment.reset()
    assert environment.step([0]).truncated[0]
    assert environment.step([0]).observation.tolist() == [0]
    environment.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_are_no_faults(error):
    environment = failing_in_slot_1(at=1, limit=5, fault=error)
    environment.reset()
    with pytest.raises(error):
        environment.step(ONES)
    assert environment.num_restarts == 0
