"""Evaluators judge what is published; the run neither waits for them nor needs them."""

import pytest
from local_run import check_ledger, check_rounds, make_agent, make_ppo_agent

from distrl.cluster.spec import ClusterSpec
from distrl.core.errors import ConfigError

pytestmark = pytest.mark.timeout(60)

EVALUATOR = "evaluator/0"


def judged(run):
    return run.tasks[EVALUATOR].counters.get("evaluations")


@pytest.mark.parametrize(
    "make, check",
    [
        (lambda: make_agent(acting={"evaluation_episodes": 3}), check_ledger),
        (make_ppo_agent, check_rounds),
    ],
    ids=["apex", "ppo"],
)
def test_versions_are_judged_one_after_the_other(make_run, make, check):
    run = make_run(max_seconds=300)
    agent = make()
    run.start(agent)
    run.start(agent, [EVALUATOR])
    run.wait_until(lambda: run.threads and judged(run) >= 2, 40.0)
    gauges = run.tasks[EVALUATOR].gauges
    assert gauges["evaluator_version"] > 0 and gauges["evaluator_return"] >= 8
    run.tasks["ps/0"].signals.received = "SIGTERM"
    check(run.join_well())
    episodes = run.tasks[EVALUATOR].counters.get("evaluation_episodes")
    assert episodes == judged(run) * agent.evaluation_episodes
    assert (run.run_dir / "metrics" / "evaluator-0.jsonl").stat().st_size > 0


def test_an_evaluator_comes_late_and_leaves_early(make_run):
    run = make_run(max_seconds=300)
    agent = make_agent(acting={"evaluation_episodes": 2})
    run.start(agent)
    run.wait_until(run.running)
    run.start(agent, [EVALUATOR])
    run.wait_until(lambda: judged(run) >= 1, 40.0)
    run.tasks[EVALUATOR].signals.received = "SIGTERM"
    assert run.threads.pop(EVALUATOR).join(20.0) is None
    view = run.tasks["memory/0"].view
    assert not view.stopping
    run.tasks["ps/0"].signals.received = "SIGTERM"
    check_ledger(run.join_well())


class Failing(type(make_agent())):
    """Cannot judge."""

    def make_judged(self, spec):
        raise ArithmeticError("it cannot judge")


def test_an_evaluator_that_fails_is_of_no_consequence(make_run):
    run = make_run(max_env_steps=3000)
    agent, failing = make_agent(), make_agent()
    failing.__class__ = Failing
    run.start(failing, [EVALUATOR])
    run.start(agent)
    with pytest.raises(ArithmeticError):
        run.threads.pop(EVALUATOR).join(40.0)
    summary = run.join_well()
    check_ledger(summary)
    assert summary["stop_reason"] == "max_env_steps=3000 reached"
    assert summary["failures"]["evaluator"] == 1


def test_any_number_of_evaluators_may_come():
    cluster = ClusterSpec(("a:1",), ("b:1",), ("c:1",), 1)
    cluster.check_task("evaluator", 7)
    with pytest.raises(ConfigError, match="evaluator, got 'judge'"):
        cluster.check_task("judge", 0)
