"""HogwildWorld: every example once, for any number of workers and rows."""

import random
import time
from functools import partial

import pytest
from examples import counting_world, each_once, play_epoch, played
from hogwild_examples import (
    Witness,
    gated,
    hogwild,
    mixture,
    pids_of,
    slow,
    wait_until,
    witnessed,
    workers,
)

from distrl.worlds import hogwild_world
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.multi_agent_world import MultiAgentWorld
from distrl.worlds.participant import Participant, ScriptedParticipant
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.reducers import values

pytestmark = pytest.mark.timeout(60)

ROWS = (1, 3, 8, 32)
STEPS = 2  # parleys an episode


@pytest.fixture(scope="module", autouse=True)
def no_worker_left():
    before = workers()
    yield
    wait_until(lambda: workers() <= before, 5.0, "workers")


def play_exactly(world, number, parleys):
    """An epoch in which each example comes once; what it reports."""
    play_epoch(world, parleys)
    report = world.report()
    assert played(report) == each_once(number)
    assert world.episodes == number == report["episodes"].value
    assert world.steps == parleys == report["steps"].value
    assert values(report)["correct"] == 1.0
    assert world.epoch_done and not world.parley()
    assert (world.epochs, world.lost, world.restarts) == (1.0, {}, 0)
    return report


@pytest.mark.parametrize("batch_size", ROWS)
@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_each_example_is_played_once_an_epoch(num_workers, batch_size):
    make = partial(witnessed, num_examples=17, steps=STEPS)
    with hogwild(make, num_workers, batch_size) as world:
        assert len(set(world.pids)) == num_workers
        for _ in range(2):
            report = play_exactly(world, 17, 17 * STEPS)
            assert pids_of(report) == set(world.pids)
            world.reset()
            assert (world.episodes, played(world.report())) == (0, {})


@pytest.fixture(
    scope="module",
    params=[(2, 1), (2, 8), (8, 1), (8, 8)],
    ids="{0[0]} workers, {0[1]} rows".format,
)
def hundred(request):
    num_workers, batch_size = request.param
    with hogwild(partial(witnessed, num_examples=100), num_workers, batch_size) as made:
        made.workers, made.rows = num_workers, batch_size
        yield made


def test_partial_epochs_leave_nothing_behind(hundred):
    """W-6, W-7: whole, in part, whole, whole."""
    report = play_exactly(hundred, 100, 100)
    assert pids_of(report) == set(hundred.pids)
    hundred.reset()
    while hundred.episodes < 20:
        for _ in range(hundred.workers):
            hundred.parley()
    assert 20 <= hundred.episodes <= min(99, 20 + hundred.workers * hundred.rows)
    for _ in range(2):
        hundred.reset()
        report = play_exactly(hundred, 100, 100)
        assert len(pids_of(report)) >= 2


def test_the_end_of_an_epoch_blocks_nobody(hundred):
    """W-10."""
    hundred.reset()
    play_epoch(hundred, 100)
    started = time.monotonic()
    assert [hundred.parley() for _ in range(20)] == [False] * 20
    assert time.monotonic() - started < 1.0
    assert hundred.episodes == 100


@pytest.mark.parametrize("hundred", [(2, 8)], indirect=True)
def test_training_between_evaluations(hundred):
    """W-6: a training task that never ends changes no evaluation."""
    with hogwild(partial(witnessed, num_examples=1, repeats=True), 2) as training:
        for epoch in range(1, 11):
            assert training.parley()
            assert training.epochs == epoch
            assert not training.epoch_done
        assert pids_of(training.report()) == set(training.pids)
        for _ in range(2):  # validation, test
            hundred.reset()
            assert play_epoch(hundred, 100)
            assert hundred.episodes == 100


def test_a_count_is_of_work_that_was_done():
    """W-20; and the metrics of an epoch can be forgotten in its middle."""
    with hogwild(partial(witnessed, num_examples=12), 2) as world:
        for number in range(1, 11):
            assert world.parley()
            report = values(world.report())
            assert (report["episodes"], report["correct"]) == (number, 1.0)
            assert report == values(world.report())  # looking changes nothing
        assert pids_of(world.report()) == set(world.pids)
        world.reset_metrics()
        assert values(world.report()) == {"episodes": 10, "steps": 10}
        play_epoch(world, 2)
        assert played(world.report()) == {10: 1, 11: 1}
        assert values(world.counts()) == {"episodes": 12, "steps": 12}


def test_parleys_go_on_side_by_side():
    """W-11."""
    world = hogwild(slow, 4)
    with world:
        started = time.monotonic()
        assert all([world.parley() for _ in range(4)])
        world.drain()
        assert time.monotonic() - started < 0.9
        report = world.report()
        assert world.episodes == 4 and pids_of(report) == set(world.pids)
        assert all([world.parley() for _ in range(4)])
        assert not world.epoch_done  # all are busy, and it is waited for them
        assert world.episodes == 8
    assert world.episodes == 8
    assert world.report() != report


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_mixture(batch_size):
    with hogwild(mixture, 2, batch_size) as world:
        assert set(world.indices()) == {"a/a", "b/b"}
        for _ in range(2):
            play_epoch(world, 5 * 2 + 17)
            report = world.report()
            expected = {f"a/id/{n}": 1 for n in range(5)}
            expected |= {f"b/id/{n}": 1 for n in range(17)}
            assert {n: v for n, v in values(report).items() if "/id" in n} == expected
            assert values(world.counts()) == {
                "episodes": 22,
                "steps": 27,
                "a/episodes": 5,
                "a/steps": 10,
                "b/episodes": 17,
                "b/steps": 17,
            }
            assert pids_of(report) == set(world.pids)
            world.reset()


def test_resets_at_any_time():
    """W-12: again, in the middle of the work, and behind an interrupted one."""
    dice = random.Random(0)
    make = partial(witnessed, num_examples=17, steps=STEPS)
    with hogwild(make, 3, 3) as world:
        for _ in range(50):
            started = time.monotonic()
            world.reset()
            for _ in range(dice.randrange(8)):
                assert world.parley()
            for _ in range(dice.randrange(3)):
                interrupted(world.reset)
            world.reset()
            assert len(pids_of(play_exactly(world, 17, 17 * STEPS))) > 1
            assert time.monotonic() - started < 10.0


def interrupted(call):
    """A call that is interrupted where it would wait."""

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hogwild_world, "wait_for_news", interrupt)
        try:
            call()
        except KeyboardInterrupt:
            return True
    return False


def test_an_interrupt_changes_nothing(tmp_path):
    gate = tmp_path / "gate"
    with hogwild(partial(gated, gate), 2) as world:
        assert world.parley() and world.parley()
        for call in (world.parley, world.drain, world.report, world.reset):
            assert interrupted(call)
        with pytest.raises(TimeoutError, match="drain: no answer from.*'worker 0'"):
            world.drain(0.1)
        gate.touch()
        assert world.episodes == 2
        assert len(played(world.report())) == 2
        gate.unlink()
        assert world.parley() and interrupted(world.reset)
        gate.touch()
        play_exactly(world, 17, 17)
        world.reset()
        assert pids_of(play_exactly(world, 17, 17)) == set(world.pids)


def endless(worker):
    return PartnerWorld([ScriptedParticipant([{"observation": 1}]), Witness()])


def test_without_examples_there_is_always_something_to_play():
    with hogwild(endless, 2, parleys_per_request=3) as world:
        assert world.num_episodes is None
        for _ in range(2):
            assert all([world.parley() for _ in range(10)])
            assert world.steps == 30 and not world.epoch_done
            assert pids_of(world.report()) == set(world.pids)
            world.reset()


def test_many_parleys_a_request():
    make = partial(witnessed, num_examples=50, steps=3, order="random")
    with hogwild(make, 2, 4, parleys_per_request=5) as world:
        for _ in range(2):
            report = play_exactly(world, 50, 150)
            assert pids_of(report) == set(world.pids)
            world.reset()


class Drawer(Participant):
    """Needs an example for each act."""

    def __init__(self, size, name):
        super().__init__(name)
        self.index, self.number = ExampleIndex(size), None
        self.num_episodes = size

    def claim(self):
        if self.number is None:
            self.number = self.index.take()
        return self.number is not None

    @property
    def epoch_done(self):
        return self.number is None and not self.index.available

    def act(self):
        self.index.finish(self.number)
        self.number = None
        return {"episode_done": True}

    def indices(self):
        return {self.id: self.index}

    def reset(self):
        self.index.reset()
        self.number = None


def two_drawers(worker):
    return MultiAgentWorld([Drawer(9, "long"), Drawer(4, "short")])


def test_examples_that_nobody_can_play_do_not_go_round_for_ever():
    with hogwild(two_drawers, 2) as world:
        for _ in range(2):
            play_epoch(world, 9)
            assert (world.episodes, world.epoch_done) == (4, True)
            world.reset()


def test_what_the_first_worker_has_learnt_is_saved(tmp_path):
    with hogwild(partial(witnessed, num_examples=3), 2) as world:
        world.parley()
        world.save(tmp_path)
        assert (tmp_path / "saved").read_text() == str(world.pids[0])
        with pytest.raises(FileNotFoundError):
            world.save(tmp_path / "nowhere")
        play_exactly(world, 3, 3)


@pytest.mark.parametrize(
    "setting", ["num_workers", "batch_size", "parleys_per_request", "max_restarts"]
)
def test_numbers_out_of_range(setting):
    with pytest.raises(ValueError, match=f"{setting} must be at least ., got -1"):
        hogwild(counting_world, **({"num_workers": 1} | {setting: -1}))
