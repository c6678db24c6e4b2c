"""Followers get each round that is not over, with exactly its parameters, once."""

import threading
import time

import numpy as np
import pytest
from addresses import unused_address
from round_parts import RunOnPs, parameters, plan, start_ps

from distrl.cluster.channel import Address
from distrl.core.errors import PeerUnreachable
from distrl.lifecycle.round_follower import RoundFollower

pytestmark = pytest.mark.timeout(60)

TASK = "actor/0"


@pytest.fixture(scope="module")
def ps():
    return start_ps()


class Rig:
    """A learner's side, written by hand, and followers."""

    def __init__(self, *ps):
        self.run = RunOnPs(*ps)
        self.board, self.store = self.run.board(), self.run.store()
        self.news = threading.Event()
        self._followers = []

    def follow(self, store=True, patience=20.0):
        follower = RoundFollower(
            self.run.reader(),
            self.run.store() if store else None,
            patience,
            self.news.set,
        )
        self._followers.append(follower)
        return follower

    def put_up(self, round, version, wake=True, **more):
        part = self.store.write_others(version, parameters(version))
        self.board.write(plan(round, version, **more), part, [TASK] if wake else [])

    def plan_alone(self, plan, *wake):
        """One whose parameters are not the ones that stand there."""
        part = self.run.store().write_others(0, parameters(0))
        self.board.write(plan, part, wake)

    def next(self, follower, timeout=10.0):
        """The next round, of which it was told."""
        assert self.news.wait(timeout), "no round came"
        self.news.clear()
        return follower.take()

    def nothing_comes(self, follower, secs=1.2):
        assert not self.news.wait(secs)
        assert follower.take() is None and not follower.waiting

    def close(self):
        for follower in self._followers:
            follower.stop(10.0)
        self.run.close()


@pytest.fixture
def rig(ps):
    made = Rig(ps)
    yield made
    made.close()


def test_a_plan_comes_with_the_parameters_of_its_version(rig):
    follower = rig.follow()
    assert follower.take() is None
    for round, version in ((0, 3), (1, 4), (5, 9)):
        rig.put_up(round, version)
        found = rig.next(follower)
        assert found.plan == plan(round, version)
        np.testing.assert_array_equal(found.parameters, parameters(version))
        assert follower.take() is None


def test_the_parts_of_other_ps_are_read(ps):
    rig = Rig(ps, start_ps(1))
    follower = rig.follow()
    for round in range(3):
        rig.put_up(round, round + 5)
        found = rig.next(follower)
        assert found.plan.round == round
        np.testing.assert_array_equal(found.parameters, parameters(round + 5))
    rig.close()


def test_a_plan_that_was_there_before_is_found(rig):
    rig.put_up(3, 3, wake=False)
    assert rig.next(rig.follow()).plan.round == 3


def test_a_memory_needs_no_parameters(rig):
    follower = rig.follow(store=False)
    rig.plan_alone(plan(0, 12))
    found = rig.next(follower)
    assert found.plan == plan(0, 12) and found.parameters is None


def test_a_round_whose_parameters_have_been_replaced_is_over(rig):
    rig.plan_alone(plan(2, 4), TASK)
    follower = rig.follow()
    rig.nothing_comes(follower)
    rig.put_up(3, 5)
    found = rig.next(follower)
    assert found.plan.round == 3
    np.testing.assert_array_equal(found.parameters, parameters(5))


def test_a_round_whose_parameters_are_not_there_yet_is_not_begun(rig):
    rig.plan_alone(plan(2, 4))
    follower = rig.follow()
    rig.nothing_comes(follower, 0.7)
    rig.store.write(4, parameters(4))
    found = rig.next(follower)
    np.testing.assert_array_equal(found.parameters, parameters(4))


def test_lost_tokens_cost_little_time(rig):
    follower = rig.follow()
    rig.put_up(0, 0)
    rig.next(follower)
    for round in (1, 2):
        began = time.monotonic()
        rig.put_up(round, round, wake=False)
        assert rig.next(follower).plan.round == round
        assert time.monotonic() - began < 3.0  # 0.5 and a busy machine


def test_a_token_is_faster_than_looking(rig, monkeypatch):
    monkeypatch.setattr("distrl.lifecycle.round_follower._TOKEN_SECS", 30.0)
    follower = rig.follow()
    for round in range(3):
        rig.put_up(round, round)
        assert rig.next(follower, 8.0).plan.round == round
    follower._thread.stop()
    rig.put_up(3, 3)  # for its `stop`, which waits for the next look


def test_repeated_tokens_deliver_once(rig):
    follower = rig.follow()
    rig.put_up(0, 0)
    assert rig.next(follower).plan.round == 0
    for _ in range(5):
        rig.board._written = -1
        rig.put_up(0, 0)
    rig.nothing_comes(follower)


def test_of_missed_rounds_only_the_newest_counts(rig):
    follower = rig.follow()
    for round in range(3):
        rig.put_up(round, round)
        assert rig.news.wait(10.0)
        rig.news.clear()
    assert follower.waiting
    found = follower.take()
    assert found.plan.round == 2
    np.testing.assert_array_equal(found.parameters, parameters(2))
    assert follower.take() is None


def test_the_last_plan_needs_no_parameters(rig):
    follower = rig.follow()
    rig.plan_alone(plan(0, 7, last=True), TASK)
    found = rig.next(follower)
    assert found.plan.last and found.parameters is None


def test_silence_of_the_ps_is_raised(rig):
    dead = Address("ps", 0, unused_address())
    run = RunOnPs(dead)
    ended = threading.Event()
    follower = RoundFollower(run.reader(), None, 0.5, ended.set)
    began = time.monotonic()
    assert ended.wait(20.0)
    assert 0.4 < time.monotonic() - began < 15.0
    with pytest.raises(PeerUnreachable, match=dead.host):
        follower.take()
    with pytest.raises(PeerUnreachable):
        follower.stop(5.0)


def test_a_short_silence_is_not(rig):
    """The first looks fail, as towards a ps that is restarted."""
    reader = rig.run.reader()
    read, calls = reader.read, []

    def fails_twice():
        calls.append(1)
        if len(calls) < 3:
            raise PeerUnreachable("away")
        return read()

    reader.read = fails_twice
    follower = RoundFollower(reader, None, 20.0, rig.news.set)
    rig.plan_alone(plan(0, 0))
    assert rig.next(follower).plan.round == 0
    follower.stop(5.0)


def test_what_was_taken_before_the_end_is_still_there(rig):
    """An error does not hide a round that has arrived."""
    follower = rig.follow(store=False)
    rig.plan_alone(plan(0, 0))
    assert rig.news.wait(10.0)
    follower.stop(5.0)
    assert follower.take().plan.round == 0
    assert follower.take() is None
    rig._followers.clear()
