"""A round is whole once, and holds every member's share once, and nothing else."""

import numpy as np
import pytest

from distrl.memories.aggregate import AggregateMemory

MEMBERS = {0: 100, 2: 102, 1: 101}


def share(*values):
    return {"a": np.array(values, np.int64), "b": np.array(values, np.float32)[:, None]}


@pytest.fixture
def memory():
    memory = AggregateMemory()
    assert memory.begin(7, MEMBERS) == 0
    return memory


def test_before_the_first_round():
    memory = AggregateMemory()
    assert memory.round == -1 and not memory.whole and memory.missing == {}
    assert not memory.add(0, 0, 100, share(1), 1)
    assert memory.abandon() == 0
    with pytest.raises(ValueError, match="round -1 is not whole"):
        memory.take()


def test_shares_are_joined_in_the_order_of_actors(memory):
    for actor, values in ((2, (5, 6)), (0, (1,)), (1, (2, 3, 4))):
        assert not memory.whole
        assert memory.add(7, actor, 100 + actor, share(*values), 10 * len(values))
    assert memory.whole and memory.missing == {}
    part = memory.take()
    assert (part.round, part.rows, part.actors) == (7, 60, [0, 1, 2])
    np.testing.assert_array_equal(part.record["a"], [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(part.record["b"][:, 0], [1, 2, 3, 4, 5, 6])


def test_a_round_is_taken_once(memory):
    for actor in range(3):
        memory.add(7, actor, 100 + actor, share(actor), 1)
    memory.take()
    assert not memory.whole
    assert not memory.add(7, 0, 100, share(9), 1)
    with pytest.raises(ValueError, match="round 7 is not whole"):
        memory.take()


@pytest.mark.parametrize(
    "round, actor, incarnation",
    [
        (6, 1, 101),  # of a round before
        (8, 1, 101),  # of the next one
        (7, 3, 103),  # a stranger
        (7, 1, 100),  # before its restart
        (7, 1, 102),  # behind it
        (7, 0, 100),  # once more
    ],
)
def test_what_does_not_belong_here_changes_nothing(memory, round, actor, incarnation):
    assert memory.add(7, 0, 100, share(1), 1)
    assert not memory.add(round, actor, incarnation, share(66), 1)
    assert memory.missing == {1: 101, 2: 102} and memory.round == 7
    for member in (1, 2):
        assert memory.add(7, member, 100 + member, share(1 + member), 1)
    part = memory.take()
    assert part.rows == 3
    np.testing.assert_array_equal(part.record["a"], [1, 2, 3])


def test_missing_is_told_whole_not_given_away(memory):
    memory.missing.clear()
    assert memory.missing == MEMBERS


def test_who_is_gone_is_not_awaited_but_what_it_sent_stays(memory):
    memory.add(7, 0, 100, share(1), 1)
    memory.drop(0)  # it has delivered
    memory.drop(1)
    memory.drop(5)  # nobody
    assert memory.missing == {2: 102}
    assert not memory.add(7, 1, 101, share(2), 1)  # too late
    memory.add(7, 2, 102, share(3), 1)
    part = memory.take()
    assert part.actors == [0, 2] and part.rows == 2
    np.testing.assert_array_equal(part.record["a"], [1, 3])


def test_a_round_that_all_have_left_is_an_empty_part(memory):
    for actor in MEMBERS:
        memory.drop(actor)
    part = memory.take()
    assert part == (7, None, 0, [])


def test_a_new_round_tells_the_rows_that_an_unfinished_one_had(memory):
    memory.add(7, 0, 100, share(1), 3)
    memory.add(7, 1, 101, share(1), 4)
    assert memory.begin(9, {0: 100}) == 7
    assert memory.missing == {0: 100} and memory.round == 9
    assert not memory.add(7, 2, 102, share(1), 1)
    memory.add(9, 0, 100, share(8), 1)
    assert memory.take().rows == 1
    assert memory.begin(10, {0: 100}) == 0  # what was taken is not told again


@pytest.mark.parametrize("number", [6, 7])
def test_rounds_go_up(memory, number):
    memory.add(7, 0, 100, share(1), 1)
    with pytest.raises(ValueError, match=f"round {number} after round 7"):
        memory.begin(number, MEMBERS)
    assert memory.missing == {1: 101, 2: 102}  # nothing has changed


def test_an_abandoned_round_takes_nothing_any_more(memory):
    memory.add(7, 0, 100, share(1), 2)
    assert memory.abandon() == 2
    assert memory.abandon() == 0
    assert not memory.whole and not memory.add(7, 1, 101, share(1), 1)
    assert memory.begin(8, {1: 101}) == 0


def test_a_later_round_leaves_an_earlier_part_alone():
    memory = AggregateMemory()
    parts = []
    for round in range(2):
        memory.begin(round, {0: 100, 1: 101})
        for actor in (0, 1):
            memory.add(round, actor, 100 + actor, share(10 * round + actor), 1)
        parts.append(memory.take())
    np.testing.assert_array_equal(parts[0].record["a"], [0, 1])
    np.testing.assert_array_equal(parts[1].record["a"], [10, 11])
    assert not np.shares_memory(parts[0].record["a"], parts[1].record["a"])
    assert parts[0].actors is not parts[1].actors


def test_members_are_copied():
    memory, members = AggregateMemory(), {0: 100}
    memory.begin(0, members)
    memory.drop(0)
    assert members == {0: 100}
    memory.begin(1, members)
    members.clear()
    assert memory.missing == {0: 100}
