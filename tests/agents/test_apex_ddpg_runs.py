"""Ape-X with DDPG: whole runs as threads, where episodes begin, who is refused."""

import functools
import json

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from local_run import cartpole, check_ledger, make_agent, pendulum, small_ddpg
from test_environment_groups import make_actor

from distrl.agents.apex_actor import _Group
from distrl.agents.behaviour import Decision
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.vector_environment import VectorStep

pytestmark = pytest.mark.timeout(60)


def make_ddpg_agent(**arguments):
    return make_agent(pendulum, model=small_ddpg(), **arguments)


def test_a_run_on_pendulum_balances_its_books(make_run):
    run = make_run(num_memories=2, max_env_steps=1500)
    acting = {"evaluation_period_secs": 0.1, "evaluation_episodes": 2}
    agent = make_ddpg_agent(acting=acting, num_groups=2)
    run.start(agent)
    summary = run.join_well(50.0)
    check_ledger(summary)
    assert summary["env_steps"] >= 1500 and summary["learner_steps"] > 0
    assert "noise_stds" in run.tasks["actor/1"].gauges
    assert run.tasks["actor/0"].gauges["evaluation_return"] < 0
    marker = json.loads((run.run_dir / "export" / "distrl_export.json").read_text())
    assert marker["outputs"] == ["action", "value"]
    store = CheckpointStore(run.run_dir / "checkpoints")
    arrays, _ = store.load(store.newest())
    assert (
        arrays["policy/action/kernel"] != arrays["target_policy/action/kernel"]
    ).any()
    policy = agent.make_policy(agent.environment_spec(), arrays)
    actions = policy.act(
        np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    )
    policy.close()
    assert actions.shape == (5, 1) and (np.abs(actions) <= 2).all()


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (functools.partial(make_agent, pendulum), r"DQNModel.*float32\[1\]"),
        (functools.partial(make_agent, cartpole, model=small_ddpg()), "DDPGModel.*int"),
    ],
)
@pytest.mark.parametrize("job", ["memory/0", "learner/0", "actor/0"])
def test_a_model_for_other_actions_is_refused_before_anything_starts(
    make_run, agent, words, job
):
    run = make_run()
    run.start(agent(), [job])
    error = run.join(20.0)[job]
    assert error is not None
    with pytest.raises(Exception, match=words):
        raise error
    assert run.tasks[job]._heartbeat is None


def test_noise_begins_anew_with_each_episode():
    """Slots end episodes after 3 and 5 steps; the reset step follows each."""
    lengths = iter((3, 5))
    vector = SerialVectorEnvironment(
        lambda: TimeLimit(pendulum(), next(lengths)), num_envs=2
    )
    with vector:
        actor = make_actor(make_ddpg_agent(), [vector])
        seen = []
        decide = actor._policy.decide

        def watched(observation, slots, began):
            seen.append(began.copy())
            return decide(observation, slots, began)

        actor._policy.decide = watched
        for _ in range(13):
            actor.step()
            list(actor.shipments())
        actor.close()
    times = np.arange(13)
    expected = np.stack([times % (length + 1) == 0 for length in (3, 5)], axis=1)
    np.testing.assert_array_equal(np.stack(seen)[:13], expected)


class Scripted:
    """One slot; its steps say `ended` in turn."""

    num_envs = 1

    def __init__(self, ended):
        self.ended = iter(ended)

    def reset(self):
        return np.zeros(1), {}

    def step_async(self, action):
        pass

    def step_wait(self):
        ended = np.array([next(self.ended)])
        return VectorStep(np.zeros(1), np.zeros(1), ended, ~ended & False, {})


def test_what_a_reset_step_says_belongs_to_no_episode():
    seen = []

    class Watching:
        def decide(self, observation, slots, began):
            seen.append(bool(began[0]))
            return Decision(observation, observation, observation)

    # The third step is the reset of the second's episode, the fifth its successor's.
    group = _Group(Scripted([False, True, True, True, False, False]), 0)
    for _ in range(6):
        group.decided(Watching())
        group.wait()
    assert seen == [True, False, False, True, False, True]
