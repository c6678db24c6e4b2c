"""HogwildWorld: workers that fail, stop, or hang, and the end of it all."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from examples import (
    CountingTeacher,
    Repeater,
    counting_world,
    each_once,
    play_epoch,
    played,
)
from hogwild_examples import (
    LIMITS,
    die,
    fail,
    gated,
    hang,
    hogwild,
    impatient,
    is_gone,
    leave,
    made_badly,
    made_once,
    pids_of,
    troubled,
    wait_until,
    witnessed,
    workers,
)

from distrl.worlds.errors import ClosedError, WorkerError
from distrl.worlds.partner_world import PartnerWorld

pytestmark = pytest.mark.timeout(60)

HERE = pathlib.Path(__file__).parent
BRISK = dataclasses.replace(LIMITS, close_secs=0.5)  # for what has to be killed


@pytest.fixture(autouse=True)
def no_worker_left():
    """Whatever a test has closed is gone: it needs not wait."""
    before = workers()
    yield
    assert workers() <= before


def without(*lost):
    return {number: 1 for number in range(17) if number not in lost}


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (fail, r"worker \d: ArithmeticError: the example is bad(.|\n)*in fail"),
        (die, r"worker \d: ChildDied: .*SIGKILL"),
    ],
)
def test_without_restarts_a_failure_ends_all(tmp_path, trouble, says):
    """W-8, W-9."""
    world = hogwild(partial(troubled, trouble, tmp_path, 1), 2, 2)
    started = time.monotonic()
    with pytest.raises(WorkerError, match=says) as caught:
        play_epoch(world, 17)
    assert time.monotonic() - started < 5.0
    assert caught.value.__cause__ is not None
    assert all(is_gone(pid) for pid in world.pids)
    reported = world.report()
    for call in (world.parley, world.drain, world.reset, world.reset_metrics):
        with pytest.raises(ClosedError):
            call()
    world.shutdown()
    assert world.report() == reported and world.episodes < 17


@pytest.mark.parametrize("trouble", [fail, die])
@pytest.mark.parametrize(("batch_size", "steps"), [(1, 1), (4, 3)])
def test_what_a_lost_worker_had_is_played_again(tmp_path, trouble, batch_size, steps):
    """W-9, with restarts."""
    make = partial(troubled, trouble, tmp_path, 1, steps=steps)
    with hogwild(make, 2, batch_size, max_restarts=1) as world:
        before = set(world.pids)
        play_epoch(world, 17 * steps)
        report = world.report()
        assert played(report) == each_once(17) and world.episodes == 17
        assert (world.restarts, world.lost) == (1, {})
        assert len(set(world.pids) - before) == 1
        assert set(world.pids) <= pids_of(report)
        world.reset()
        play_epoch(world, 17 * steps)
        assert played(world.report()) == each_once(17)
        assert pids_of(world.report()) == set(world.pids)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_example_that_fails_twice_is_given_up_alone(tmp_path, num_workers):
    """Its neighbours in a batch are not."""
    make = partial(troubled, die, tmp_path, 2, steps=2)
    with hogwild(make, num_workers, 8, max_restarts=2) as world:
        play_epoch(world, 17 * 2)
        report = world.report()
        assert played(report) == without(5)
        assert (world.episodes, world.restarts) == (16, 2)
        assert world.lost == {"teacher": [5]} and world.epoch_done
        assert len(pids_of(report)) >= 2
        world.reset()
        assert world.lost == {}
        play_epoch(world, 17 * 2)
        assert played(world.report()) == each_once(17)


def test_a_worker_that_dies_unasked(tmp_path):
    with hogwild(partial(witnessed, num_examples=17), 2, max_restarts=2) as world:
        for worker in (0, 1):
            os.kill(world.pids[worker], signal.SIGKILL)
            play_epoch(world, 17)
            assert played(world.report()) == each_once(17)
            assert (world.restarts, world.lost) == (worker + 1, {})
            world.reset()
        os.kill(world.pids[0], signal.SIGKILL)
        with pytest.raises(WorkerError, match="worker 0: ChildDied"):
            play_epoch(world, 17)


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (fail, "worker 1: ArithmeticError: the example is bad"),
        (leave, "worker 1: ChildDied: .*exit code 3 before it was ready"),
    ],
)
def test_a_world_that_cannot_be_made(trouble, says):
    with pytest.raises(WorkerError, match=says):
        hogwild(partial(made_badly, trouble, 1), 2, max_restarts=5)


def test_what_is_no_world():
    with pytest.raises(TypeError, match="make_world: expected a function, got <"):
        hogwild(counting_world(17), 2)
    with pytest.raises(WorkerError, match="worker 0: .*expected a World, got None"):
        hogwild(lambda worker: None, 1)


def test_an_epoch_without_an_index():
    """Each worker would play all of it."""

    class Careless(CountingTeacher):
        def indices(self):
            return {}

    before = workers()
    with pytest.raises(ValueError, match="'careless' has epochs of 17 .*no.*index"):
        hogwild(lambda worker: PartnerWorld([Careless(17), Repeater()], "careless"), 2)
    assert workers() <= before


@pytest.mark.parametrize(
    ("trouble", "says", "startup_secs"),
    [
        (fail, "worker .: ArithmeticError", 40.0),
        (hang, "worker .: TimeoutError", 0.5),
    ],
)
def test_restarts_that_fail_use_up_what_is_allowed(
    tmp_path, trouble, says, startup_secs
):
    make = partial(made_once, trouble, tmp_path, 2)
    world = hogwild(make, 2, max_restarts=2, limits=BRISK)
    started = time.monotonic()
    with impatient(world, startup_secs=startup_secs):
        with pytest.raises(WorkerError, match=says):
            play_epoch(world, 17)
    assert time.monotonic() - started < 10.0
    assert world.restarts == 2
    with pytest.raises(ClosedError):
        world.parley()


def test_a_restart_may_fail_once(tmp_path):
    """The world is made by two workers, not by the third, and by the fourth."""
    make = partial(made_again, tmp_path)
    with hogwild(make, 2, max_restarts=2) as world:
        play_epoch(world, 17)
        assert played(world.report()) == each_once(17)
        assert (world.restarts, world.lost) == (2, {})


def made_again(notes, worker):
    made = len(list(notes.glob("made*")))
    (notes / f"made-{made}-{worker}").touch()
    if made == 2:
        fail()
    return troubled(die, notes, 1, worker)


def test_an_interrupted_restart_ends_all(tmp_path, monkeypatch):
    world = hogwild(partial(troubled, die, tmp_path, 1), 2, max_restarts=2)

    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("distrl.core.child_process.ChildProcess.start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        play_epoch(world, 17)
    assert all(is_gone(pid) for pid in world.pids if pid is not None)
    with pytest.raises(ClosedError):
        world.parley()


def test_a_stopped_worker():
    with hogwild(partial(witnessed, num_examples=17), 2, limits=BRISK) as world:
        os.kill(world.pids[0], signal.SIGSTOP)
        with impatient(world, call_secs=0.5):
            with pytest.raises(TimeoutError, match="parley: no answer.*'worker 0'"):
                play_epoch(world, 17)
            for call in (world.parley, world.drain, world.report, world.reset):
                started = time.monotonic()
                with pytest.raises(TimeoutError, match="no answer from.*'worker 0'"):
                    call()
                assert 0.4 < time.monotonic() - started < 3.0
        os.kill(world.pids[0], signal.SIGCONT)
        play_epoch(world, 17)
        report = world.report()
        assert played(report) == each_once(17)
        assert pids_of(report) == set(world.pids)
        os.kill(world.pids[1], signal.SIGSTOP)
        started = time.monotonic()
    assert time.monotonic() - started < 10.0


def test_a_reset_that_came_too_late_is_called_again(tmp_path):
    gate = tmp_path / "gate"
    with hogwild(partial(gated, gate), 2, 3) as world:
        assert world.parley() and world.parley()
        with impatient(world, call_secs=0.3):
            for _ in range(2):
                with pytest.raises(TimeoutError, match="drain: no answer"):
                    world.reset()
        gate.touch()
        for _ in range(2):
            world.reset()
            play_epoch(world, 17)
            assert played(world.report()) == each_once(17)
            assert pids_of(world.report()) == set(world.pids)


def test_what_cannot_be_asked_changes_nothing():
    with hogwild(partial(witnessed, num_examples=17), 2) as world:
        assert world.parley()
        for ask in (
            lambda: world.participants,
            lambda: world.acts,
            lambda: world.episode_done,
            world.display,
        ):
            with pytest.raises(NotImplementedError, match="HogwildWorld"):
                ask()
        for ask in (world.play, lambda: world.share(0)):
            with pytest.raises(TypeError, match="HogwildWorld"):
                ask()
        play_epoch(world, 17)
        assert played(world.report()) == each_once(17)
        assert pids_of(world.report()) == set(world.pids)


def failed(world):
    with pytest.raises(WorkerError):
        play_epoch(world, 17)


@pytest.mark.parametrize(
    "first",
    [
        lambda world: None,
        lambda world: [world.parley() for _ in range(3)],
        lambda world: play_epoch(world, 17),
        lambda world: world.shutdown(),
        failed,
    ],
    ids=["new", "in the middle", "at the end", "twice", "failed"],
)
def test_shutdown_in_every_state(tmp_path, first):
    bad = 1 if first is failed else 0
    world = hogwild(partial(troubled, fail, tmp_path, bad), 2, 3)
    first(world)
    started = time.monotonic()
    world.shutdown()
    assert time.monotonic() - started < 10.0
    assert workers().isdisjoint(world.pids)
    for call in (world.parley, world.reset, lambda: world.epoch_done):
        with pytest.raises(ClosedError, match="was shut down"):
            call()


_PARENT = """
import sys, time
from functools import partial
from hogwild_examples import hogwild, gated
import pathlib
if __name__ == "__main__":
    world = hogwild(partial(gated, pathlib.Path("/nowhere")), 3)
    world.parley()
    print(*world.pids, flush=True)
    time.sleep(60)
"""


def test_workers_end_with_their_parent():
    """W-13: one of them is busy, two are idle."""
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        text=True,
    )
    with parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 3
    wait_until(lambda: all(map(is_gone, pids)), 5.0, "the workers' end")
