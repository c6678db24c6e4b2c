"""Groups in threads: nothing that they gave is lost, and they end."""

import threading

import numpy as np
import pytest

from distrl.agents.group_threads import GroupThreads
from distrl.agents.unroll_streams import Advance
from distrl.core.dynamic_batcher import DynamicBatcher

pytestmark = pytest.mark.timeout(30)

SECS = 20.0


class Counting:
    """Streams that only count; each step waits until it is let, if that is asked."""

    def __init__(self, name="a", error_at=None):
        self.name, self.error_at = name, error_at
        self.steps = 0
        self.let = threading.Event()
        self.let.set()
        self.in_step = threading.Event()

    @property
    def pending_env_steps(self):
        return self.steps % 3

    def step(self):
        self.in_step.set()
        assert self.let.wait(SECS)
        self.steps += 1
        if self.steps == self.error_at:
            raise RuntimeError(f"{self.name} broke")
        return Advance(None, 1, [{"group": self.name, "step": self.steps}])


@pytest.fixture
def make_threads():
    made = []

    def make(*streams):
        made.append(GroupThreads(streams, SECS))
        return made[-1]

    yield make
    for threads in made:
        threads.close()
    left = [t.name for t in threading.enumerate() if t.name.startswith("group ")]
    assert left == []


def infos(advances):
    return [(a.infos[0]["group"], a.infos[0]["step"]) for a in advances]


def test_a_slow_group_holds_up_nobody(make_threads):
    slow, fast = Counting("slow"), Counting("fast")
    slow.let.clear()
    threads = make_threads(slow, fast)
    assert infos(threads.step() for _ in range(20)) == [
        ("fast", step) for step in range(1, 21)
    ]
    slow.let.set()
    while infos([threads.step()]) != [("slow", 1)]:
        pass


def test_every_step_is_handed_on_in_the_order_of_its_group(make_threads):
    streams = [Counting(name) for name in "abc"]
    threads = make_threads(*streams)
    advances = [threads.step() for _ in range(50)] + list(threads.finish())
    for each in streams:
        own = [step for name, step in infos(advances) if name == each.name]
        assert own == list(range(1, each.steps + 1))
    assert threads.pending_env_steps == sum(each.steps % 3 for each in streams)


def test_they_go_only_so_far_ahead(make_threads):
    streams = [Counting(name) for name in "ab"]
    threads = make_threads(*streams)
    threads.step()
    for each in streams:
        assert each.in_step.wait(SECS)
    # What waits is bounded: two steps a group, one in hand each, and the one taken.
    assert sum(each.steps for each in streams) <= 2 * 2 + 2 + 1


def test_an_error_in_a_group_is_raised_where_steps_are_taken(make_threads):
    threads = make_threads(Counting("a"), Counting("b", error_at=5))
    with pytest.raises(RuntimeError, match="b broke"):
        for _ in range(1000):
            threads.step()


def test_finish_before_the_first_step_is_nothing(make_threads):
    assert list(make_threads(Counting()).finish()) == []


def test_a_batcher_that_is_closed_ends_who_waits_in_it(make_threads):
    def never(rows):
        raise AssertionError

    batcher = DynamicBatcher(never, min_batch_size=8, timeout_secs=50.0)

    class Asking(Counting):
        def step(self):
            self.in_step.set()
            return batcher(np.zeros(1, np.float32))

    asking = Asking()
    threads = make_threads(asking, Counting("b"))
    threads.step()
    assert asking.in_step.wait(SECS)
    batcher.close()
    threads.close()
