"""Ledgers against traced rows: right ones, and each way to be wrong."""

import copy

import pytest

from distrl.benchmark.row_ledger import MessageId, RowTraces, check_rows, read_traces

LIVING, KILLED, AGAIN = "actor/0/100", "actor/1/101", "actor/1/900"
OWNER, DEAD_OWNER = "memory/0/950", "memory/0/102"


def died(who):
    return who in (KILLED, DEAD_OWNER)


def traces_of(files):
    traces = RowTraces()
    for owner, lines in files.items():
        traces.owners.append(owner)
        for line in lines:
            traces.add(owner, line)
    return traces


def quiet_run():
    """Nobody dies: two messages of 10 rows arrive, 5 rows are refused."""
    return {
        LIVING: [
            f"sent experience memory/0 {LIVING} 1 10",
            f"refused experience memory/0 {LIVING} 0 5",
        ],
        AGAIN: [f"sent experience memory/0 {AGAIN} 1 10"],
        OWNER: [
            f"received experience memory/0 {LIVING} 1 10",
            f"received experience memory/0 {AGAIN} 1 10",
        ],
    }


def ledger(sent, received, lost=None):
    lost = sent - received if lost is None else lost
    return {"experience": {"sent": sent, "received": received, "lost": lost}}


def test_a_ledger_that_is_right_has_no_complaint():
    assert check_rows(traces_of(quiet_run()), ledger(25, 20), died) == []


@pytest.mark.parametrize(
    "counts, words",
    [
        (ledger(25, 20, 4), "25 rows sent are not 20 received and 4 lost"),
        (ledger(25, 20, 6), "25 rows sent are not 20 received and 6 lost"),
        (ledger(25, 19), "has 19 rows received, traced are 20"),
        (ledger(25, 21), "has 21 rows received, traced are 20"),
        (ledger(24, 20), "has 24 rows sent, traced are 25"),
        (ledger(26, 20), "has 26 rows sent, traced are 25"),
        (ledger(20, 25), "-5 rows lost"),
    ],
)
def test_a_ledger_that_is_wrong_by_a_row(counts, words):
    found = check_rows(traces_of(quiet_run()), counts, died)
    assert any(text == f"experience: {words}" or words in text for text in found)


def killed_run():
    """An actor is killed: of its three messages the second was known, the third, 7
    rows, was not. A memory is killed when it had taken in 10 rows and another 4 that
    nobody knew of."""
    return {
        LIVING: [
            f"sent experience memory/0 {LIVING} 1 10",
            f"sent experience memory/0 {LIVING} 2 4",
            f"sent experience memory/0 {LIVING} 3 2",
        ],
        KILLED: [f"sent experience memory/0 {KILLED} {n} {n + 4}" for n in (1, 2, 3)],
        DEAD_OWNER: [
            f"received experience memory/0 {LIVING} 1 10",
            f"received experience memory/0 {LIVING} 2 4",
        ],
        OWNER: [
            f"received experience memory/0 {LIVING} 3 2",
            f"received experience memory/0 {KILLED} 1 5",
        ],
    }


@pytest.mark.parametrize("received", range(1, 24))
def test_only_killed_owners_take_in_rows_unnoticed(received):
    counts = ledger(26, received)
    found = check_rows(traces_of(killed_run()), counts, died)
    right = 7 <= received <= 21
    assert (found == []) == right
    if not right:
        assert f"{received} rows received, traced are from 7 to 21" in found[0]
        assert "(14 of them of killed owners)" in found[0]


@pytest.mark.parametrize("sent", range(18, 38))
def test_only_killed_producers_send_rows_unnoticed_that_nobody_gets(sent):
    found = check_rows(traces_of(killed_run()), ledger(sent, 14), died)
    right = 21 <= sent <= 34  # with and without the messages of 6 and 7 rows
    assert (found == []) == right
    if not right:
        assert f"{sent} rows sent, traced are from 21 to 34" in found[0]
        assert "(13 of them of killed producers)" in found[0]


def test_what_dead_tasks_exchanged_may_be_unknown_to_all():
    files = killed_run()
    files[DEAD_OWNER].append(f"received experience memory/0 {KILLED} 2 6")
    assert check_rows(traces_of(files), ledger(21, 7), died) == []


def test_a_message_that_two_owners_took_is_found():
    files = killed_run()
    files[OWNER].append(f"received experience memory/0 {LIVING} 1 10")
    (text,) = check_rows(traces_of(files), ledger(30, 15), died)
    assert "actor/0/100 → memory/0, number 1 was received twice" in text
    assert DEAD_OWNER in text and OWNER in text


@pytest.mark.parametrize(
    "file, line, words",
    [
        (OWNER, f"received experience memory/0 {LIVING} 1 10", "received twice"),
        (OWNER, f"received experience memory/0 {LIVING} 7 10", "but never sent"),
        (OWNER, f"received experience memory/1 {LIVING} 1 10", "but never sent"),
        (OWNER, "received experience memory/0 actor/0/99 1 10", "but never sent"),
        (LIVING, f"sent experience memory/0 {LIVING} 1 10", "sent twice"),
        (LIVING, f"sent experience memory/0 {AGAIN} 8 1", "an odd line"),
        (LIVING, f"sold experience memory/0 {LIVING} 8 1", "an odd line"),
        (LIVING, f"sent experience memory/0 {LIVING}", "nobody can read"),
        (LIVING, f"sent experience memory/0 {LIVING} 8 ten", "nobody can read"),
    ],
)
def test_lines_that_must_not_be(file, line, words):
    files = copy.deepcopy(quiet_run())
    files[file].append(line)
    found = check_rows(traces_of(files), ledger(25, 20), died)
    assert any(words in text for text in found)


def test_a_message_has_the_rows_that_it_was_sent_with():
    files = quiet_run()
    files[OWNER][0] = files[OWNER][0].replace(" 1 10", " 1 9")
    found = check_rows(traces_of(files), ledger(25, 19), died)
    assert any("sent with 10 rows, received with 9" in text for text in found)


def test_lanes_count_for_their_channel_and_others_do_not():
    traces = traces_of(quiet_run())
    traces.sent[MessageId("experience/3", "learner/0", LIVING, 1)] = 8
    traces.sent[MessageId("experiences", "memory/0", LIVING, 1)] = 1000
    assert check_rows(traces, ledger(33, 20), died) == []


def test_a_run_without_traces_is_no_proof():
    expected = ["no task has traced its rows"]
    assert check_rows(RowTraces(), ledger(0, 0), died) == expected
    assert check_rows(traces_of({OWNER: []}), ledger(0, 0), died) == []
    (complaint,) = check_rows(traces_of({OWNER: []}), ledger(2, 0), died)
    assert "the ledger has 2 rows sent, traced are 0" in complaint


def test_files_are_those_of_all_tasks(tmp_path):
    for owner, lines in quiet_run().items():
        name = owner.replace("/", "-")
        (tmp_path / f"{name}.txt").write_text("".join(f"{li}\n" for li in lines))
    (tmp_path / "ps-0-5.txt").write_text("")
    traces = read_traces(tmp_path)
    assert traces == traces_of(dict(sorted(quiet_run().items())) | {"ps/0/5": []})
    assert sum(traces.refused.values()) == 5 and len(traces.received) == 2
