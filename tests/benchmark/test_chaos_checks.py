"""What is said of endings, good and bad ones."""

import pytest

from distrl.benchmark import chaos_checks
from distrl.benchmark.chaos_faults import GONE, Delivery, Fault
from distrl.benchmark.chaos_run import Ending

HEARTBEAT_SECS = 6.0
KILL = Delivery(Fault(1.0, "kill", "actor", 1), 1000.0)
STOP = Delivery(Fault(1.0, "stop", "memory", 0, 20.0), 1000.0)


def summary(**changes):
    tasks = [
        {"job": "ps", "task": 0, "exit_code": 0, "restarts": 0},
        {"job": "actor", "task": 1, "exit_code": 0, "restarts": 1},
    ]
    counts = {"sent": 20, "received": 10, "lost": 10}
    good = {
        "stop_reason": "max_seconds=45.0 reached",
        "failures": {"actor": 1, "memory": 0, "learner": 0, "ps": 0},
        "tasks": tasks,
        "channels": {"experience": counts},
        "final_evaluation": {"mean_return": 480.0},
    }
    return {**good, **changes}


def ending(exit_code=0, lines=(), left=(), by_hand=(), files=(), **changes):
    timed = tuple((1000.5, line) for line in lines)
    return Ending(
        exit_code, 1020.0, timed, summary(**changes), dict(by_hand), left, files
    )


def survived(*args, deliveries=(KILL,), **kwargs):
    end = ending(*args, **kwargs)
    return list(chaos_checks.check_survived(end, deliveries, HEARTBEAT_SECS))


def failures(**counts):
    return {"failures": {"actor": 1, "memory": 0, "learner": 0, "ps": 0, **counts}}


def failed_task(job, code):
    tasks = summary()["tasks"]
    return {
        "tasks": [t | ({"exit_code": code} if t["job"] == job else {}) for t in tasks]
    }


def test_a_good_ending_has_no_complaint():
    assert survived() == []
    assert survived(by_hand={"actor/5": [0, 0]}) == []


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"exit_code": 1}, "exit code: the launcher's is 1"),
        ({"exit_code": None}, "exit code: the run did not end"),
        ({"stop_reason": "SIGTERM at ps/0"}, "stop reason: 'SIGTERM at ps/0'"),
        ({"stop_reason": "failure: x"}, "stop reason: 'failure: x'"),
        (failures(actor=0), "failures: 0 of job actor are counted, 1 happened"),
        (failures(actor=2), "failures: 2 of job actor are counted, 1 happened"),
        (failures(ps=1), "failures: 1 of job ps are counted, 0 happened"),
        (failed_task("ps", 3), "exit code: ps 0 ended with 3"),
        ({"files": ("/x/.1.new",)}, "left behind: file /x/.1.new"),
        ({"left": ("port 7 is listened on",)}, "left behind: port 7"),
        ({"by_hand": {"actor/5": [0, 1]}}, "actor/5, started by hand, ended with 1"),
    ],
)
def test_each_fault_of_an_ending_is_one_complaint(arguments, expected):
    (complaint,) = survived(**arguments)
    assert expected in complaint


def test_the_launchers_words_on_the_failure_are_told():
    lines = ("run directory: x", "ps 0 failed with exit code 1; ending the run", "bye")
    (complaint,) = survived(exit_code=1, lines=lines)
    assert "(ps 0 failed with exit code 1; ending the run)" in complaint


def test_a_fault_that_did_not_happen_is_told_and_not_expected():
    missed = KILL._replace(note=GONE)
    found = survived(deliveries=[missed], **failures(actor=0))
    assert found == ["fault: kill actor/1 after 1.0 s: the task was gone already"]


@pytest.mark.parametrize(
    "job, kind, secs, counted",
    [
        ("actor", "kill", 0.0, True),
        ("ps", "kill", 0.0, True),
        ("actor", "stop", 20.0, True),
        ("ps", "stop", 20.0, False),
        ("memory", "delay", 1.5, False),
        ("actor", "leave", 0.0, False),
        ("actor", "join", 0.0, False),
    ],
)
def test_which_faults_count_as_failures(job, kind, secs, counted):
    delivery = Delivery(Fault(1.0, kind, job, 0, secs), 0.0)
    assert chaos_checks.failing(delivery, HEARTBEAT_SECS) == counted


def test_of_several_failures_at_least_one_counts():
    twice = [KILL, KILL]
    for number, right in ((0, False), (1, True), (2, True), (3, False)):
        assert (survived(deliveries=twice, **failures(actor=number)) == []) == right


def ended(delivery=KILL, exit_code=1, lines=(), left=(), at=1020.0):
    end = ending(exit_code, lines, left)._replace(time=at)
    return list(chaos_checks.check_ended(end, delivery))


CAUSE = "actor 1 failed with exit code -9 (SIGKILL); ending the run"


def test_a_run_that_must_not_survive():
    assert ended(lines=[CAUSE]) == []
    lost = "learner/0 E the run has failed: memory/0 is lost: no beats for 6 s"
    assert ended(STOP, lines=[lost]) == []


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"exit_code": 0}, "exit code: the launcher's is 0, though"),
        ({"exit_code": None}, "exit code: the run did not end, though"),
        ({"at": 1031.0}, "end: 31.0 s after the fault, expected 30"),
        ({"lines": ["actor 2 failed with exit code -9"]}, "cause: "),
        ({"lines": [CAUSE, *["a line"] * 100]}, "cause: "),
        ({"left": ("process 5: python",)}, "left behind: process 5: python"),
    ],
)
def test_a_run_that_ends_badly(arguments, expected):
    (complaint,) = ended(**{"lines": [CAUSE], **arguments})
    assert expected in complaint


def test_a_stopped_task_is_named_with_what_it_did():
    (complaint,) = ended(STOP, lines=["memory/0 I started", "actor/1 is lost"])
    assert complaint == "cause: the last lines do not say what happened to memory/0"


def test_who_died_and_when():
    lines = (
        (1.0, "actor 1 failed with exit code -9 (SIGKILL); starting it again"),
        (2.0, "actor 1 failed with exit code 1; starting it again"),
        (3.0, "memory 0 ended because of another task's failure (exit code 3)"),
        (4.0, "learner 0 is lost; killing it"),
    )
    end = Ending(
        0, 9.0, lines, summary(**failed_task("ps", 1)), {"actor/7": [0, 1]}, ()
    )
    expected = {"actor/1": 2.0, "memory/0": 3.0, "ps/0": 9.0, "actor/7": 9.0}
    assert end.deaths() == expected


def rows(tmp_path, incarnation, *lines):
    folder = tmp_path / "rows"
    folder.mkdir(exist_ok=True)
    text = "".join(f"{line.format(incarnation)}\n" for line in lines)
    (folder / f"actor-1-{incarnation}.txt").write_text(text)
    (folder / "memory-0-1.txt").write_text(
        f"received experience memory/0 actor/1/{incarnation} 1 10\n"
    )


@pytest.mark.parametrize("started, died", [(1000.4, True), (1000.6, False)])
def test_the_ledger_need_not_know_what_those_did_who_died(tmp_path, started, died):
    """10 rows arrived, 10 were refused, of another message of 5 nobody knows. The
    launcher says at 1000.5 s that the actor failed."""
    sent = "sent experience memory/0 actor/1/{} "
    refused = "refused experience memory/0 actor/1/{} 0 10"
    rows(tmp_path, int(started * 1e9), f"{sent}1 10", refused, f"{sent}2 5")
    found = list(chaos_checks.check_ledger(ending(lines=[CAUSE]), tmp_path))
    assert (found == []) == died
    if not died:
        assert found == [
            "ledger: experience: the ledger has 20 rows sent, traced are 25"
        ]
    assert list(chaos_checks.check_ledger(ending(), tmp_path, killed=2000.0)) == []


def test_many_complaints_about_a_ledger_are_cut(tmp_path):
    stranger = "received experience memory/0 actor/9/9 {} 1"
    rows(tmp_path, 5, "sent experience memory/0 actor/1/{} 1 10")
    lines = [stranger.format(n) for n in range(20)]
    (tmp_path / "rows" / "memory-0-2.txt").write_text("\n".join(lines))
    found = list(chaos_checks.check_ledger(ending(), tmp_path))
    assert len(found) == 6 and found[-1] == "ledger: and 17 more"


@pytest.mark.parametrize(
    "evaluation, right", [({"mean_return": 475.0}, True), ({"mean_return": 474}, False)]
)
def test_learning_is_the_final_evaluation(evaluation, right):
    found = list(chaos_checks.check_learned(ending(final_evaluation=evaluation)))
    assert (found == []) == right
    assert list(chaos_checks.check_learned(ending(final_evaluation=None)))
