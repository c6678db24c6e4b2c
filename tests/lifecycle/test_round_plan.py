"""Plans stand on ps 0 as they were written."""

import time

import pytest
from round_parts import RunOnPs, plan, start_ps

from distrl.lifecycle.round_plan import RoundPlan, Share

pytestmark = pytest.mark.timeout(60)

NOW = time.time_ns()  # what an incarnation is: more than a float can hold
SHARES = {2: Share(NOW + 1, 0), 0: Share(NOW, 1), 11: Share(NOW + 3, 0)}


@pytest.fixture(scope="module")
def ps():
    return start_ps()


@pytest.fixture
def run(ps):
    made = RunOnPs(ps)
    yield made
    made.close()


@pytest.mark.parametrize(
    "written",
    [
        RoundPlan(0, 0, {}),
        RoundPlan(7, 123456789012, SHARES),
        RoundPlan(8, 3, {}, last=True),
    ],
)
def test_decoded_as_encoded(written):
    data = written.encode()
    assert data.dtype == "uint8" and data.ndim == 1
    read = RoundPlan.decode(data)
    assert read == written and isinstance(read.last, bool)
    assert all(isinstance(share, Share) for share in read.shares.values())


def test_who_owns_what():
    written = RoundPlan(7, 1, SHARES)
    assert written.of_memory(0) == {2: NOW + 1, 11: NOW + 3}
    assert written.of_memory(1) == {0: NOW}
    assert written.of_memory(2) == {}
    assert written.memories == {0, 1}
    assert RoundPlan(8, 1, {}, last=True).memories == set()


def test_the_board_before_the_first_plan(run):
    board = run.board()
    assert board.number() == -1 and board.read() is None


def test_everybody_reads_the_newest_plan(run):
    writer, reader = run.board(), run.board()
    for number in (0, 1, 5):
        writer.write(plan(number, version=10 + number, shares=SHARES))
        assert reader.number() == number
        assert reader.read() == plan(number, version=10 + number, shares=SHARES)


def test_numbers_do_not_go_back(run):
    board = run.board()
    board.write(plan(3))
    with pytest.raises(ValueError, match="2 after version 3"):
        board.write(plan(2))
    assert run.board().read().round == 3


def test_runs_do_not_meet(run, ps):
    other = RunOnPs(ps)
    run.board().write(plan(4))
    run.board().tokens("actor/0").wake()
    board = other.board()
    assert board.number() == -1 and board.read() is None
    assert not board.tokens("actor/0").wait(0.2)
    other.close()


def test_tokens_are_those_of_one_task(run):
    waker, waiter = run.board(), run.board()
    waker.tokens("actor/1").wake()
    assert not waiter.tokens("actor/0").wait(0.2)
    assert not waiter.tokens("memory/1").wait(0.2)
    assert waiter.tokens("actor/1").wait(5.0)
    assert waiter.tokens("actor/1") is waiter.tokens("actor/1")  # one session
