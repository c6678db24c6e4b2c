"""The acting loop over one and several groups of environments."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from failing_cartpole import FailingCartPole
from local_run import NUM_ENVS, STRICT, check_ledger, make_agent

from distrl.agents.apex_actor import ApexActor
from distrl.core.counters import Counters
from distrl.core.errors import ConfigError
from distrl.environments.restarts import RestartPolicy
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)
from distrl.environments.slot_records import SlotSettings

pytestmark = pytest.mark.timeout(60)


class Watched(SerialVectorEnvironment):
    """Writes down what is asked of it."""

    def __init__(self, *args, log, **kwargs):
        super().__init__(*args, **kwargs)
        self.log, self.name = log, len({name for name, _ in log})
        log.append((self.name, "made"))

    def step_async(self, actions):
        self.log.append((self.name, "starts"))
        super().step_async(actions)

    def step_wait(self, timeout=None):
        self.log.append((self.name, "waits"))
        return super().step_wait(timeout)


def make_actor(agent, groups) -> ApexActor:
    task = SimpleNamespace(
        cluster=SimpleNamespace(num_actors=1, memory=["a"]),
        index=0,
        run=SimpleNamespace(seed=0),
        restart=0,
        gauges={},
        counters=Counters(),
    )
    return ApexActor(task, groups, None, agent.model, agent.acting)


@pytest.mark.parametrize("num_groups", [1, 2, 3, 4])
def test_groups_are_the_slots_of_one(num_groups):
    """Whatever the number of groups, slot e plays the same episodes."""
    whole, parts = (
        make_agent(num_groups=number).make_groups(seed=3, task=1)
        for number in (1, num_groups)
    )
    assert len(parts) == num_groups
    assert sum(part.num_envs for part in parts) == NUM_ENVS
    assert max(p.num_envs for p in parts) - min(p.num_envs for p in parts) <= 1
    expected, _ = whole[0].reset()
    np.testing.assert_array_equal(
        np.concatenate([part.reset()[0] for part in parts]), expected
    )


@pytest.mark.parametrize("num_groups", [0, NUM_ENVS + 1])
def test_groups_without_environments_are_refused(num_groups):
    with pytest.raises(ConfigError, match=f"num_groups {num_groups}"):
        make_agent(num_groups=num_groups)


def test_each_group_steps_while_the_policy_acts_on_the_others():
    log = []
    agent = make_agent(back_end=functools.partial(Watched, log=log), num_groups=2)
    groups = agent.make_groups(0, 0)
    actor = make_actor(agent, groups)
    del log[:]
    for _ in range(3):
        actor.step()
    calls = [name for name in log if name[1] != "made"]
    one, other = [(0, "waits"), (0, "starts")], [(1, "waits"), (1, "starts")]
    assert calls == [(0, "starts"), *one, (1, "starts"), *other, *(one + other) * 2]
    actor.close()


def test_rows_hold_what_was_acted_on():
    """Every row: the observation acted on, and the reward that came of it."""
    agent = make_agent(num_groups=2, acting={"block_length": 5, "n_step": 1})
    groups = agent.make_groups(0, 0)
    actor = make_actor(agent, groups)
    seen = [[*group.observation] for group in actor._groups]
    for _ in range(5):
        actor.step()
        for group, rows in zip(actor._groups, seen, strict=True):
            rows.extend(group.observation)
    (shipment,) = actor.shipments()
    frames = shipment.record.frames.reshape(5, NUM_ENVS, 4)
    for first, rows in zip((0, 2), seen, strict=True):
        expected = np.reshape(rows[:10], (5, 2, 4))
        np.testing.assert_array_equal(frames[:, first : first + 2], expected)
    (rest,) = actor.flush()
    last = np.concatenate([group.observation for group in actor._groups])
    np.testing.assert_array_equal(rest.record.frames, last)
    assert shipment.rows + rest.rows == actor._task.counters.get("env_steps") == 20
    actor.close()


@pytest.mark.parametrize("num_groups", [1, 2])
def test_a_run_over_processes_with_environments_that_fail(make_run, num_groups):
    policy = RestartPolicy(limit=1000)
    back_end = functools.partial(
        SharedMemoryVectorEnvironment, settings=SlotSettings(restart_on_error=policy)
    )
    agent = make_agent(FailingCartPole, back_end=back_end, num_groups=num_groups)
    run = make_run(max_env_steps=1500)
    run.start(agent)
    summary = run.join_well(50.0)
    check_ledger(summary)
    # Of 2 actors' 4 environments each, after 70 steps, again and again.
    assert summary["environment_restarts"] >= 1500 // 70 - 2 * NUM_ENVS


def test_an_environment_that_fails_ends_the_run_by_name(make_run):
    run = make_run(policies=STRICT)
    run.start(make_agent(FailingCartPole, back_end=SharedMemoryVectorEnvironment))
    errors = run.join(50.0)
    failed = errors["actor/0"] or errors["actor/1"]
    assert "fell off" in str(failed) or "fell off" in str(run.summary()["stop_reason"])
