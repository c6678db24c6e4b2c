"""Plans stand on ps 0 as they were written; tokens bring them to who waits."""

import threading
import time

import numpy as np
import pytest
from addresses import unused_address
from round_parts import RunOnPs, parameters, plan, start_ps

from distrl.cluster.channel import Address
from distrl.core.errors import PeerUnreachable
from distrl.lifecycle.round_board import RoundBoard, RoundReader
from distrl.lifecycle.round_plan import Share

pytestmark = pytest.mark.timeout(60)

PART = np.array([7, 8, 9], np.uint8)
SHARES = {2: Share(time.time_ns(), 0), 0: Share(7, 1)}


@pytest.fixture(scope="module")
def ps():
    return start_ps()


@pytest.fixture
def run(ps):
    made = RunOnPs(ps)
    yield made
    made.close()


def test_before_the_first_plan_there_is_none(run):
    assert run.reader().read() is None


def test_everybody_reads_the_newest_plan(run):
    writer, readers = run.board(), [run.reader(), run.reader("memory/1")]
    for number in (0, 1, 5):
        written = plan(number, version=10 + number, shares=SHARES)
        writer.write(written, PART)
        assert [reader.read() for reader in readers] == [written, written]


def test_parameters_stand_where_a_store_finds_them(run):
    store, board = run.store(), run.board()
    for version in (3, 4):
        part = store.write_others(version, parameters(version))
        board.write(plan(version, version), part)
        found = run.store().read()
        assert found[0] == run.store().version() == version
        np.testing.assert_array_equal(found[1], parameters(version))


def test_numbers_do_not_go_back(run):
    board = run.board()
    board.write(plan(3), PART)
    for number in (2, 3):
        with pytest.raises(ValueError, match=f"round {number} after round 3"):
            board.write(plan(number), PART)
    assert run.reader().read().round == 3


def test_runs_do_not_meet(run, ps):
    other = RunOnPs(ps)
    run.board().write(plan(4), PART, ["actor/0"])
    reader = other.reader()
    assert reader.read() is None and reader.wait(1.0) is None
    other.close()


def test_a_token_brings_the_plan_to_whom_it_is_for(run):
    board = run.board()
    board.write(plan(4, shares=SHARES), PART, ["actor/1"], ["memory/0"])
    assert run.reader("actor/0").wait(1.0) is None
    for task, part in (("actor/1", [7, 8, 9]), ("memory/0", [])):
        reader = run.reader(task)
        token = reader.wait(5.0)
        assert token.plan == plan(4, shares=SHARES) and token.part.tolist() == part
        assert reader.wait(0.1) is None
    board.write(plan(5), PART, ["actor/0"])  # one that the board has not woken before
    assert run.reader("actor/0").wait(5.0).plan == plan(5)


def test_the_plan_stands_when_its_token_comes(run):
    board, reader = run.board(), run.reader()
    for number in range(20):
        board.write(plan(number), PART, ["actor/0"])
        assert reader.wait(5.0).plan.round == reader.read().round == number


def test_a_token_ends_a_wait(run):
    board, reader = run.board(), run.reader()
    assert reader.wait(1.0) is None
    found = []
    thread = threading.Thread(target=lambda: found.append(reader.wait(20.0)))
    thread.start()
    board.write(plan(0), PART, ["actor/0"])
    thread.join(15.0)
    assert found[0].plan == plan(0)


def test_a_wait_without_news_ends_in_time(run):
    reader = run.reader()
    assert reader.wait(0.1) is None  # opens the session
    began = time.monotonic()
    assert reader.wait(0.3) is None
    assert 0.2 < time.monotonic() - began < 2.0


def test_writing_never_waits_and_little_is_kept(run):
    board, began = run.board(), time.monotonic()
    for number in range(20):
        board.write(plan(number), PART, ["actor/0"])
    assert time.monotonic() - began < 5.0
    reader, kept = run.reader(), 0
    while reader.wait(0.3) is not None:
        kept += 1
    assert 1 <= kept <= 2
    assert reader.read().round == 19


def test_nobody_there():
    address = Address("ps", 0, unused_address())
    board, reader = (
        RoundBoard("1", address, "parameters", timeout=2.0),
        RoundReader("1", address, "actor/0", timeout=2.0),
    )
    for call in (
        lambda: board.write(plan(0), PART),
        reader.read,
        lambda: reader.wait(1.0),
    ):
        began = time.monotonic()
        with pytest.raises(PeerUnreachable, match=address.host):
            call()
        assert time.monotonic() - began < 6.0


def test_a_closed_end_opens_again(run):
    board, reader = run.board(), run.reader()
    board.write(plan(0), PART, ["actor/0"])
    board.close()
    reader.close()
    board.write(plan(1), PART)
    assert reader.wait(5.0).plan.round == 0
    assert reader.read().round == 1
