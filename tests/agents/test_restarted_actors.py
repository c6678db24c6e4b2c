"""Actors that die and are started again while the run goes on."""

import dataclasses
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from local_run import TIMEOUTS, Killed, LocalRun, cartpole, make_agent, make_ppo_agent

from distrl.agents import greedy_evaluation
from distrl.core.errors import TaskRefused
from distrl.lifecycle.failure_policy import FailurePolicies

PATIENT = dataclasses.replace(TIMEOUTS, shutdown_secs=20.0)
IGNORE = FailurePolicies(actor="ignore")


class Dying(gymnasium.Wrapper):
    """Ends its task, without a word, in its 200th step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 200:
            raise Killed
        return self.env.step(action)


def check_balance(summary):
    """Rows of who died are received or counted as lost."""
    for name, counts in summary["channels"].items():
        assert counts["sent"] == counts["received"] + counts["lost"], (name, counts)
    assert summary["rows"]["inserted"] > 0


def end(run: LocalRun) -> dict:
    run.tasks["ps/0"].signals.received = "enough"
    summary = run.join_well(40.0)
    assert summary["stop_reason"] == "enough at ps/0"
    return summary


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", [make_agent, make_ppo_agent])
def test_a_killed_actor_is_replaced_and_the_ledger_balances(make_run, make):
    run = make_run(timeouts=PATIENT)
    run.start(make(), ["ps/0", "memory/0", "learner/0", "actor/0"])
    run.start(make(lambda: Dying(cartpole())), ["actor/1"])
    learner = run.tasks["learner/0"]
    dying = run.threads.pop("actor/1")
    with pytest.raises(Killed):
        dying.join(40.0)
    steps = run.tasks["actor/1"].counters.get("env_steps")
    run.start(make(), ["actor/1"], restart=1)
    again = run.tasks["actor/1"].counters
    run.wait_until(lambda: again.get("env_steps") > 100, 40.0)
    before = learner.counters.get("learner_steps")
    run.wait_until(lambda: learner.counters.get("learner_steps") > before + 5, 40.0)
    summary = end(run)
    check_balance(summary)
    assert summary["failures"] == {
        "ps": 0,
        "memory": 0,
        "learner": 0,
        "actor": 1,
        "evaluator": 0,
    }
    assert summary["env_steps"] >= steps + 100  # what it counted stays


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", [make_agent, make_ppo_agent])
def test_a_lost_actor_is_left_out_and_fenced(make_run, make):
    run = make_run(timeouts=PATIENT, policies=IGNORE)
    run.start(make())
    learner, lost = run.tasks["learner/0"], run.tasks["actor/1"]
    run.wait_until(lambda: lost.counters.get("env_steps") > 200, 40.0)
    lost.heartbeat.stop()  # it ends, and nobody hears of that
    thread = run.threads.pop("actor/1")
    run.wait_until(lambda: learner.view.failures == {"actor": 1}, 40.0)
    before = learner.counters.get("learner_steps")
    run.wait_until(lambda: learner.counters.get("learner_steps") > before + 5, 40.0)
    assert learner.view.phase == "running"
    assert learner.view.members["actor/1"][2] == "lost"
    with pytest.raises(TaskRefused, match="actor/1 was declared lost: no beats"):
        raise learner.view.verdict(lost.producer)
    thread.join(30.0)
    check_balance(end(run))


@pytest.mark.parametrize(
    "best, reached, written",
    [((0.0, None), -5.0, True), ((9.0, 3), 8.0, False), ((9.0, 3), 9.0, True)],
)
def test_the_best_of_an_earlier_life_stays_the_best(
    monkeypatch, best, reached, written
):
    wrote = []
    store = SimpleNamespace(write=lambda version, _: wrote.append(version))
    monkeypatch.setattr(greedy_evaluation, "parameter_store", lambda *_: store)
    view = SimpleNamespace(best_return=best[0], best_version=best[1])
    task = SimpleNamespace(view=view, gauges={})
    evaluation = greedy_evaluation.GreedyEvaluation(task, None, Killed, 1.0, 2)
    evaluation._finish([reached, reached])
    assert bool(wrote) == written == ("best_return" in task.gauges)
    assert task.gauges["evaluation_return"] == reached


def test_a_restarted_actor_plays_other_episodes():
    agent = make_agent(num_groups=2)

    def first_observations(*place):
        groups = agent.make_groups(3, *place)
        return np.concatenate([group.reset()[0] for group in groups])

    lives = [first_observations(1, restart) for restart in range(3)]
    np.testing.assert_array_equal(lives[0], first_observations(1))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.isin(lives[one], lives[other]).any()
