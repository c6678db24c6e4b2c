"""Whole runs of IMPALA as threads: every env step is trained on, by whoever it was."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from impala_run import BATCH, check_ledger, make_agent
from local_run import NUM_ENVS, STRICT, TIMEOUTS, Killed, pendulum

from distrl.core.errors import ConfigError, RunFailed
from distrl.environments.memory_task import CueTask
from distrl.learners.impala_session import ImpalaSettings
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.policy_value_network import recurrent_policy_value_network

pytestmark = pytest.mark.timeout(90)

PATIENT = dataclasses.replace(TIMEOUTS, shutdown_secs=50.0)


def test_several_ps_memories_and_actors(make_run):
    run = make_run(num_ps=2, num_memories=2, num_actors=3, max_env_steps=2500)
    agent = make_agent(num_groups=2)
    run.start(agent)
    summary = run.join_well(50.0)
    check_ledger(summary, agent)
    assert summary["env_steps"] >= 2500 and summary["learner_steps"] > 20
    for index in range(2):
        assert run.tasks[f"memory/{index}"].counters.get("inserted") > 0
    sizes = {len(batch.first_is_last) for batch, _ in agent.trained}
    assert sizes - {BATCH} == set() or max(sizes) == BATCH  # but for remainders
    assert (run.run_dir / "export").is_dir()


def test_an_actor_feeds_memories_by_turns(make_run):
    run = make_run(num_memories=2, num_actors=1, max_env_steps=600)
    run.start(make_agent())
    run.join_well()
    fed = [run.tasks[f"memory/{i}"].counters.get("inserted") for i in range(2)]
    assert 0 <= fed[0] - fed[1] <= NUM_ENVS


def test_unrolls_of_an_actor_overlap_by_one_row(make_run):
    run = make_run(num_actors=2)
    agent = make_agent()
    run.start(agent)

    def unrolls_of(actor):
        return [r for header, r in agent.stored if header.task == actor]

    run.wait_until(lambda: min(len(unrolls_of(actor)) for actor in (0, 1)) > 10)
    run.tasks["ps/0"].signals.received = "SIGTERM"
    check_ledger(run.join_well(), agent)
    for actor in (0, 1):
        own = unrolls_of(actor)
        for before, after in zip(own, own[1:], strict=False):
            np.testing.assert_array_equal(
                before.observation[:, -1], after.observation[:, 0]
            )
            assert (after.version >= before.version).all()


def test_the_age_of_what_is_trained_on_is_known(make_run):
    run = make_run(num_actors=2, max_learner_steps=40)
    agent = make_agent()
    run.start(agent)
    summary = run.join_well()
    assert summary["learner_steps"] == 40
    lags = [gauges["policy_lag"] for _, gauges in agent.trained]
    assert min(lags) >= 0 and max(lags) > 0
    versions = [batch.version.max() for batch, _ in agent.trained]
    assert versions[-1] > versions[0] >= 0
    for step, (batch, gauges) in enumerate(agent.trained):
        assert gauges["max_policy_lag"] == step - batch.version.min()


def test_replayed_unrolls_are_mixed_in(make_run):
    run = make_run(num_actors=2, max_env_steps=2500)
    agent = make_agent(replay_capacity=30, replay_proportion=1.0)
    run.start(agent)
    summary = run.join_well()
    replayed = summary["rows"]["sampled"] - summary["rows"]["inserted"]
    check_ledger(summary, agent, replayed)
    assert 0.8 * summary["rows"]["inserted"] < replayed <= summary["rows"]["inserted"]


def test_a_recurrent_policy_is_trained_from_the_states_it_had(make_run):
    """Without learning, the target policy is the one that acted."""
    run = make_run(num_actors=2, max_env_steps=2500)
    network = partial(recurrent_policy_value_network, policy_gain=3.0)
    task = partial(CueTask, delay=3)
    agent = make_agent(task, RecurrentCore(8, network=network), rate=0.0)
    run.start(agent)
    check_ledger(run.join_well(), agent)
    assert max(gauges["approximate_kl"] for _, gauges in agent.trained) < 1e-6
    assert any(batch.core_state.c.any() for batch, _ in agent.trained)


def test_continuous_actions(make_run):
    run = make_run(num_actors=1, max_env_steps=800)
    agent = make_agent(pendulum)
    run.start(agent)
    check_ledger(run.join_well(), agent)
    assert all(np.isfinite(gauges["loss"]) for _, gauges in agent.trained)


def test_an_actor_leaves_and_another_comes(make_run):
    run = make_run(num_actors=2)
    agent = make_agent()
    run.start(agent)
    run.wait_until(lambda: len(agent.trained) > 5)
    run.tasks["actor/1"].signals.received = "SIGTERM"
    run.threads["actor/1"].join(20.0)
    before = len(agent.trained)
    run.wait_until(lambda: len(agent.trained) > before + 5)
    run.start(agent, ["actor/5"])
    run.wait_until(lambda: any(header.task == 5 for header, _ in agent.stored))
    run.tasks["ps/0"].signals.received = "SIGTERM"
    check_ledger(run.join_well(), agent)


def test_a_killed_actor_ends_the_run_in_bounded_time(make_run):
    run = make_run(num_actors=2, timeouts=PATIENT, policies=STRICT)
    agent = make_agent()
    run.start(agent)
    run.wait_until(lambda: len(agent.trained) > 2)
    task = run.tasks["actor/1"]

    def killed(name, amount):
        raise Killed

    task.counters.add = killed
    errors = run.join(40.0)
    assert isinstance(errors["actor/1"], Killed)
    assert isinstance(errors["ps/0"], RunFailed)


@pytest.mark.parametrize(
    "batches, words",
    [
        ({"replay_proportion": 1.0, "replay_capacity": 3}, "UnrollBatches.*3"),
        ({"replay_proportion": -1.0}, "UnrollBatches.*-1"),
    ],
)
def test_a_replay_that_cannot_serve_is_refused_at_start(make_run, batches, words):
    run = make_run(num_actors=1)
    run.start(make_agent(**batches), ["learner/0", "actor/0"])
    for error in run.join(20.0).values():
        assert isinstance(error, ConfigError)
        with pytest.raises(ConfigError, match=words):
            raise error


def test_fewer_unrolls_than_devices_are_refused(make_run):
    agent = make_agent(batch_size=1)
    agent.training = ImpalaSettings(devices=("/cpu:0", "/cpu:0"))
    run = make_run(num_actors=1)
    run.start(agent, ["learner/0"])
    with pytest.raises(ConfigError, match="batch_size 1 .* 2 devices"):
        run.threads.pop("learner/0").join(20.0)
