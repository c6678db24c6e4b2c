"""What ps 0 writes down for the launcher."""

import json

from run_under_test import running

from distrl.lifecycle.beat import FAILED
from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.lifecycle.run_status import RunReporter
from distrl.lifecycle.settings import StopConditions


def test_a_status_line_tells_who_is_lost_and_what_may_be_started_again(tmp_path):
    policies = FailurePolicies(actor="restart(7)", memory="ignore")
    run = running(also="actor/1", policies=policies)
    incarnation = 1796007885038476123  # a time in ns, which no float holds
    run.beat("actor/0", incarnation)
    run.live(16.0, ("ps/0", "memory/0", "learner/0"))
    run.beat("actor/1", 2)
    run.beat("actor/1", 2, state=FAILED, message="ValueError: no")
    (tmp_path / "metrics").mkdir()
    reporter = RunReporter(tmp_path, StopConditions())
    reporter(run.state)
    reporter.close()
    line = (tmp_path / "metrics" / "ps-0.jsonl").read_text().splitlines()[-1]
    status = json.loads(line)
    assert status["phase"] == "running"
    assert status["lost"] == {"actor/0": incarnation}
    assert status["failures"] == {"actor": 4}  # both replaced, or lost; one failed
    assert FailurePolicies(**status["failure_policies"]) == policies
