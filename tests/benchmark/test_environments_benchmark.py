import os
import threading
import time
from functools import partial

import numpy as np
import psutil
import pytest
from gymnasium.utils.env_checker import check_env

from distrl.benchmark import environment_cycles, environments
from distrl.benchmark.dummy_environment import DummyEnvironment
from distrl.benchmark.environment_back_ends import (
    ASYNC,
    BACK_ENDS,
    SHARED,
    TASKS,
    BackEnd,
    Task,
)
from distrl.benchmark.environments import Rate
from distrl.benchmark.measuring import child, json_lines, output_of

QUICK = Task("quick", partial(DummyEnvironment, work_secs=0.0, shape=(2,)), 1.3)
PROGRAM = "distrl.benchmark.environments"


class Fake:
    """A vector environment that notes what is done with it."""

    def __init__(self):
        self.actions, self.closed = [], None

    def step(self, actions):
        self.actions.append(actions)

    def close(self, **how):
        self.closed = how


class FakeRunning:
    def __init__(self, name, log, rates):
        self.name, self._log, self._rates = name, log, iter(rates)

    def measure(self, actions, secs):
        self._log.append((self.name, secs))
        return next(self._rates)


def fake_back_ends(*names):
    return [BackEnd(name, lambda task, num_envs: Fake()) for name in names]


# The dummy.


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_dummy_is_a_proper_environment():
    check_env(DummyEnvironment(0.0, (5, 4, 3)), skip_render_check=True)


def test_dummy_works_for_as_much_cpu_time_of_its_thread():
    environment = DummyEnvironment(work_secs=0.02)
    environment.reset(seed=0)
    before = time.thread_time()
    observation, *_ = environment.step(0)
    assert time.thread_time() - before >= 0.02
    assert observation.shape == (84, 84, 4) and observation.dtype == np.uint8


def test_dummy_shows_two_images_by_turns_and_is_truncated():
    environment = DummyEnvironment(0.0, (2, 3), episode_length=3)
    first, _ = environment.reset(seed=1)
    steps = [environment.step(0) for _ in range(3)]
    shown = [first, *(step[0] for step in steps)]
    assert np.array_equal(shown[0], shown[2]) and np.array_equal(shown[1], shown[3])
    assert not np.array_equal(shown[0], shown[1])
    assert [step[1:4] for step in steps] == [
        (1.0, False, False),
        (1.0, False, False),
        (1.0, False, True),
    ]
    again, _ = DummyEnvironment(0.0, (2, 3)).reset(seed=1)
    assert np.array_equal(first, again)


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"work_secs": -0.5}, "-0.5"),
        ({"work_secs": float("nan")}, "nan"),
        ({"episode_length": 0}, "0"),
    ],
)
def test_dummy_names_bad_settings(settings, value):
    with pytest.raises(ValueError, match=f"{next(iter(settings))}.* got {value}"):
        DummyEnvironment(**settings)


# Measuring.


def test_a_round_counts_env_steps_and_repeats_the_actions():
    fake, actions = Fake(), np.arange(6).reshape(2, 3)
    start = time.perf_counter()
    rate = environments.Running("fake", fake, []).measure(actions, 0.01)
    wall = time.perf_counter() - start
    steps = len(fake.actions)
    assert 3 * steps / wall <= rate.per_sec <= 3 * steps / 0.01
    assert rate.cpu_us > 0
    assert steps > 3
    assert [list(a) for a in fake.actions[:3]] == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]


def test_a_round_steps_at_least_once():
    fake = Fake()
    environments.Running("fake", fake, []).measure(np.zeros((1, 1)), 0.0)
    assert len(fake.actions) == 1


def test_the_cpu_clock_of_a_process_is_all_of_its_cpu_time():
    first = time.process_time_ns()
    found = time.clock_gettime_ns(environments.cpu_clock(os.getpid()))
    assert first <= found <= time.process_time_ns()


def test_a_round_has_the_cpu_time_of_the_back_ends_processes():
    """Its own process in place of another: everything counts twice."""

    def cpu_us(pids):
        environment = DummyEnvironment(work_secs=0.01, shape=(1,))
        environment.reset()
        running = environments.Running("dummy", environment, pids)
        return running.measure(np.zeros((1, 1)), 0.03).cpu_us

    assert cpu_us([os.getpid()]) > 1.5 * cpu_us([]) > 1.5 * 10_000


def test_rounds_alternate_and_the_first_does_not_count():
    log = []
    started = [FakeRunning("a", log, [1, 2, 3]), FakeRunning("b", log, [4, 5, 6])]
    rates = environments.rounds(started, np.zeros((1, 1)), 3.0, repeats=2)
    assert rates == {"a": [2, 3], "b": [5, 6]}
    assert [name for name, _ in log] == ["b", "a", "a", "b", "b", "a"]
    assert {secs for _, secs in log} == {1.5}


def test_the_summary_is_of_medians_and_ratios_are_within_a_round():
    rates = [Rate(10.0, 3.0), Rate(30.0, 1.0), Rate(20.0, 8.0)]
    base = [Rate(10.0, 1.0), Rate(10.0, 1.0), Rate(1.0, 1.0)]
    assert environments.ratios(rates, base) == [1.0, 3.0, 20.0]
    assert environments.summary(rates, base) == {
        "env_steps_per_sec": 20.0,
        "cpu_us_per_env_step": 3.0,
        "times_async": 3.0,
        "note": None,
    }


@pytest.mark.parametrize(("median", "word"), [(1.3, "reached"), (1.29, "MISSED")])
def test_the_verdict_compares_with_the_goal(median, word):
    line = environments.verdict(QUICK, [2.0, median, 0.5])
    assert line == (
        f"quick: {SHARED} / {ASYNC} = {median:.2f} "
        f"(rounds 0.50 to 2.00), goal 1.3 {word}"
    )


def test_what_is_not_installed_or_not_there_is_not_started():
    back_ends = [
        *fake_back_ends(SHARED, ASYNC),
        BackEnd("missing", pytest.fail, package="no_such_package"),
        BackEnd("other", pytest.fail, fits=lambda task: task.name != "quick"),
    ]
    records, line = environments.measure(QUICK, 2, 0.01, 1, back_ends)
    assert [record["back_end"] for record in records] == [SHARED, ASYNC, "missing"]
    assert records[0]["env_steps_per_sec"] > 0 and records[0]["note"] is None
    assert records[2]["note"] == "not installed"
    assert records[2]["env_steps_per_sec"] is None
    assert line.startswith("quick: ")


def test_all_are_closed_when_one_does_not_start():
    made = [Fake(), Fake()]

    def fail(task, num_envs):
        raise OSError("planted")

    back_ends = [
        BackEnd("first", lambda *_: made[0]),
        BackEnd("second", lambda *_: made[1], end={"terminate": True}),
        BackEnd("third", fail),
    ]
    with pytest.raises(OSError, match="planted"):
        with environments.running(QUICK, 1, back_ends):
            pytest.fail("it has started")
    assert [fake.closed for fake in made] == [{}, {"terminate": True}]


def test_actions_are_those_of_the_task_and_always_the_same():
    actions = environments.random_actions(QUICK, 5)
    assert actions.shape[1:] == (5,) and set(np.unique(actions)) == set(range(6))
    assert np.array_equal(actions, environments.random_actions(QUICK, 5))
    cartpole = environments.random_actions(TASKS["cartpole"], 1)
    assert set(np.unique(cartpole)) == {0, 1}


def test_each_task_has_the_back_ends_that_fit():
    counts = {
        name: sum(back_end.fits(task) for back_end in BACK_ENDS)
        for name, task in TASKS.items()
    }
    all_of_them = len(BACK_ENDS)
    assert counts == {
        "cartpole": all_of_them,
        "pong": all_of_them,
        "dummy": all_of_them - 1,  # envpool has none
    }


# What cycles leave.


def test_cycles_are_behind_one_that_does_not_count():
    calls = []
    found = environment_cycles.run(5, lambda: calls.append(None))
    assert len(calls) == 6 and len(found) == 3


def files():
    """Keeps one more file open with each call."""
    kept = []
    return kept, lambda: kept.append(open(os.devnull))


def threads():
    kept = []

    class Kept(threading.Thread):
        def __init__(self):
            self.ending = threading.Event()
            super().__init__(target=self.ending.wait)
            self.start()

        def close(self):
            self.ending.set()
            self.join()

    return kept, lambda: kept.append(Kept())


def children():
    kept = []

    class Kept:
        def __init__(self):
            self._manager = child(["http.server", "0", "--bind", "127.0.0.1"])
            self._manager.__enter__()

        def close(self):
            self._manager.__exit__(None, None, None)

    return kept, lambda: kept.append(Kept())


def shared_memory():
    kept = []

    class Kept:
        def __init__(self):
            self._path = f"/dev/shm/distrl_test_{os.getpid()}_{len(kept)}"
            open(self._path, "w").close()

        def close(self):
            os.unlink(self._path)

    return kept, lambda: kept.append(Kept())


@pytest.mark.parametrize(
    ("leak", "words"),
    [
        (files, "2 fds left"),
        (threads, "2 threads left"),
        (children, "children left: ["),
        (shared_memory, f"shared_memory left: ['distrl_test_{os.getpid()}_1'"),
    ],
    ids=["files", "threads", "children", "shared_memory"],  # the same in all workers
)
@pytest.mark.timeout(60)
def test_what_is_left_is_named(leak, words, monkeypatch):
    monkeypatch.setattr(environment_cycles, "_SETTLE_SECS", 0.1)
    kept, do = leak()
    try:
        found = environment_cycles.run(2, do)
    finally:
        for one in kept:
            one.close()
    assert any(text.startswith(words) for text in environment_cycles.problems(*found))


def test_what_ends_soon_is_not_left():
    """A file that is closed while the holdings settle."""
    late = []

    def do():
        late.append(open(os.devnull))
        timer = threading.Timer(0.3, late[-1].close)
        timer.start()
        late.append(timer)

    found = environment_cycles.run(2, do)
    for timer in late[1::2]:
        timer.join()
    assert not [t for t in environment_cycles.problems(*found) if "fds" in t]


@pytest.mark.parametrize("name", ["rss_mb", "helpers_rss_mb"])
def test_memory_may_grow_over_the_first_half_only(name):
    small = environment_cycles.holdings()
    large = small._replace(**{name: getattr(small, name) + 5.5})
    assert environment_cycles.problems(small, large, large) == []
    assert environment_cycles.problems(large, large, small) == []
    (problem,) = environment_cycles.problems(small, small, large)
    assert problem == f"{name} grew by 5.5, more than 5"


# The program.


def test_help_says_what_is_measured(capsys):
    with pytest.raises(SystemExit, match="0"):
        environments.main(["--help"])
    text = capsys.readouterr().out
    assert environments.__doc__.splitlines()[0] in text
    assert "cpu_us_per_env_step" in text and "--cycles" in text


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--secs=0", "in 0.0 s"),
        ("--repeats=0", "0 repeats"),
        ("--num_envs=0", "num_envs must be at least 1, got 0"),
        ("--tasks=cartpole,nowhere", "unknown tasks ['nowhere']"),
        ("--cycles=1", "cycles must be at least 2, got 1"),
    ],
)
def test_bad_input_is_one_line(flag, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        environments.main([flag])
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith("environments: ") and words in printed.err


def test_what_cycles_leave_is_the_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(environment_cycles, "report", lambda _: ["2 fds left", "more"])
    with pytest.raises(SystemExit, match="1"):
        environments.main(["--cycles=2"])
    assert capsys.readouterr().err == "environments: 2 fds left; more\n"


@pytest.mark.timeout(120)
def test_a_tiny_run():
    tiny = ["--tasks=cartpole,dummy", "--num_envs=2", "--secs=0.02", "--repeats=2"]
    text = output_of([PROGRAM, *tiny])
    records = json_lines(text)
    assert [(record["task"], record["back_end"]) for record in records] == [
        (name, back_end.name)
        for name in ("cartpole", "dummy")
        for back_end in BACK_ENDS
        if back_end.fits(TASKS[name])
    ]
    for record in records:
        assert record["num_envs"] == 2
        if record["note"] is None:
            costs = ("env_steps_per_sec", "cpu_us_per_env_step", "times_async")
            assert min(record[cost] for cost in costs) > 0
        if record["task"] == "dummy" and record["note"] is None:
            assert record["cpu_us_per_env_step"] >= 1000  # its work
        if record["back_end"] == ASYNC:
            assert record["times_async"] == 1
    verdicts = [line for line in text.splitlines() if f"{SHARED} / {ASYNC}" in line]
    assert [line.split(":")[0] for line in verdicts] == ["cartpole", "dummy"]


@pytest.mark.timeout(120)
def test_cycles_leave_nothing():
    records = json_lines(output_of([PROGRAM, "--cycles=3"]))
    assert [record["cycles"] for record in records] == [0, 1, 3]
    names = ("fds", "threads", "children")
    before, _, after = ([record[name] for name in names] for record in records)
    assert before == after and min(before) > 0
    assert all(record["rss_mb"] > 0 for record in records)


@pytest.mark.timeout(120)
def test_sigterm_leaves_no_process():
    arguments = ["--tasks=dummy", "--num_envs=1", "--secs=1000"]
    with child([PROGRAM, *arguments]) as process:
        below = []
        deadline = time.monotonic() + 60
        while len(below) < 5 and time.monotonic() < deadline:
            below = psutil.Process(process.pid).children(recursive=True)
            time.sleep(0.02)
        process.terminate()
        process.wait(60)
    assert len(below) >= 5
    assert process.returncode == 143
    _, alive = psutil.wait_procs(below, timeout=20)
    assert alive == []
