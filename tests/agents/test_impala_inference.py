"""Whole runs of IMPALA whose actors share forward passes, or ask the learner."""

from functools import partial

import numpy as np
import pytest
from failing_cartpole import FailingCartPole
from impala_run import check_ledger, make_agent
from local_run import NUM_ENVS, STRICT

from distrl.agents.inference_server import InferenceServer
from distrl.agents.settings import Inference
from distrl.core.errors import ConfigError, RunFailed
from distrl.environments.memory_task import CueTask
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.policy_value_network import recurrent_policy_value_network

pytestmark = pytest.mark.timeout(90)

THREADS = Inference(group_threads=True)
LEARNER = Inference(at="learner")
BOTH = Inference(at="learner", group_threads=True)


def check_answers(summary, num_acted_rows):
    """Every question was answered once, and is a row of some env step."""
    for name in ("observations", "actions"):
        counts = summary["channels"][name]
        assert counts["sent"] == counts["received"] == num_acted_rows, name


def acted_rows(run):
    counters = [task.counters for name, task in run.tasks.items() if "actor" in name]
    return sum(int(each.get("sent/observations")) for each in counters)


@pytest.mark.parametrize("inference", [THREADS, LEARNER, BOTH])
def test_every_env_step_is_trained_on_with_the_state_it_had(make_run, inference):
    """Without learning, the target policy is the one that acted."""
    run = make_run(num_memories=2, num_actors=2, max_env_steps=1500)
    network = partial(recurrent_policy_value_network, policy_gain=3.0)
    agent = make_agent(
        partial(CueTask, delay=3),
        RecurrentCore(8, network=network),
        num_groups=2,
        rate=0.0,
        inference=inference,
    )
    run.start(agent)
    summary = run.join_well(50.0)
    check_ledger(summary, agent)
    assert summary["env_steps"] >= 1500 and summary["learner_steps"] > 10
    rows = acted_rows(run)
    check_answers(summary, rows)
    assert (rows >= summary["env_steps"]) if inference.at == "learner" else rows == 0
    assert max(gauges["approximate_kl"] for _, gauges in agent.trained) < 1e-6
    assert any(batch.core_state.c.any() for batch, _ in agent.trained)


@pytest.mark.parametrize("inference", [THREADS, LEARNER])
def test_unrolls_of_a_group_overlap_by_one_row(make_run, inference):
    run = make_run(num_actors=1, max_env_steps=1000)
    agent = make_agent(num_groups=2, inference=inference)
    run.start(agent)
    check_ledger(run.join_well(), agent)
    last_rows, beginnings = set(), 0
    for _, record in agent.stored:
        beginnings += sum(o[0].tobytes() not in last_rows for o in record.observation)
        last_rows |= {o[-1].tobytes() for o in record.observation}
    assert beginnings == NUM_ENVS < len(last_rows) / 10
    versions = [record.version for _, record in agent.stored]
    assert all((np.diff(version, axis=1) >= 0).all() for version in versions)


def test_newer_parameters_reach_who_acts(make_run):
    run = make_run(num_actors=1, max_learner_steps=30)
    agent = make_agent(inference=LEARNER)
    run.start(agent)
    run.join_well()
    versions = [batch.version.max() for batch, _ in agent.trained]
    assert versions[-1] > versions[0] >= 0
    assert run.tasks["learner/0"].gauges["policy_lag"] < 30


def test_an_actor_leaves_and_another_comes(make_run):
    run = make_run(num_actors=2)
    agent = make_agent(inference=LEARNER)
    run.start(agent)
    run.wait_until(lambda: len(agent.trained) > 5)
    run.tasks["actor/1"].signals.received = "SIGTERM"
    run.threads["actor/1"].join(20.0)
    run.start(agent, ["actor/1"])
    before = len([h for h, _ in agent.stored if h.task == 1])
    run.wait_until(
        lambda: len([h for h, _ in agent.stored if h.task == 1]) > before + 2
    )
    run.tasks["ps/0"].signals.received = "SIGTERM"
    check_ledger(run.join_well(), agent)


def test_a_policy_that_fails_at_the_learner_ends_the_run(make_run, monkeypatch):
    load = InferenceServer.load

    def failing(server, version, parameters):
        load(server, version, parameters)
        if version == 3:
            server._policy._policy._sampler.close()

    monkeypatch.setattr(InferenceServer, "load", failing)
    run = make_run(num_actors=2)
    run.start(make_agent(inference=LEARNER))
    errors = run.join(40.0)
    assert isinstance(errors["ps/0"], RunFailed)
    assert "learner/0" in str(errors["ps/0"])


def test_an_environment_that_fails_in_a_thread_ends_the_run(make_run):
    run = make_run(num_actors=1, policies=STRICT)
    run.start(make_agent(FailingCartPole, num_groups=2, inference=THREADS))
    errors = run.join(40.0)
    assert isinstance(errors["ps/0"], RunFailed)
    assert "actor/0" in str(errors["ps/0"])


def test_inferences_smaller_than_a_group_are_refused(make_run):
    run = make_run(num_actors=1)
    small = Inference(max_batch_size=NUM_ENVS - 1)
    run.start(make_agent(inference=small), ["learner/0"])
    with pytest.raises(ConfigError, match=f"{NUM_ENVS - 1} is below the {NUM_ENVS}"):
        run.threads.pop("learner/0").join(20.0)
