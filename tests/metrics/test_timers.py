import threading

import pytest

from distrl.metrics.timers import Rate, WaitTimer, process_cpu_seconds


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timer(clock):
    return WaitTimer(clock)


def test_fraction_is_since_the_last_reading(clock, timer):
    clock.now += 1.0
    with timer.measure("wait"):
        clock.now += 3.0
    assert timer.fraction("wait") == 0.75
    clock.now += 4.0
    assert timer.fraction("wait") == 0.0
    assert timer.total_fraction("wait") == 3 / 8
    assert (timer.secs("wait"), timer.secs("busy")) == (3.0, 5.0)


def test_readings_of_states_are_independent(clock, timer):
    with timer.measure("wait"):
        clock.now += 1.0
    clock.now += 1.0
    assert timer.fraction("wait") == 0.5
    assert timer.fraction("busy") == 0.5


def test_a_wait_that_lasts_is_seen(clock, timer):
    clock.now += 2.0
    timer.enter("wait")
    clock.now += 2.0
    assert timer.fraction("wait") == 0.5
    clock.now += 5.0
    assert timer.fraction("wait") == 1.0
    assert timer.enter("busy") == "wait"
    assert timer.secs("wait") == 7.0


def test_nested_states_and_errors(clock, timer):
    with pytest.raises(KeyError):
        with timer.measure("train"):
            clock.now += 1.0
            with timer.measure("wait"):
                clock.now += 2.0
                raise KeyError
    clock.now += 4.0
    seconds = [timer.secs(state) for state in ("train", "wait", "busy")]
    assert seconds == [1.0, 2.0, 4.0]


def test_no_time_has_passed(timer):
    assert timer.fraction("wait") == timer.total_fraction("wait") == 0.0


def test_reading_from_another_thread_stays_within_bounds():
    timer = WaitTimer()
    done, seen = threading.Event(), []

    def read():
        while not done.is_set():
            seen.append(timer.fraction("wait"))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(5000):
        with timer.measure("wait"):
            pass
    done.set()
    reader.join()
    assert all(0.0 <= fraction <= 1.0 for fraction in seen)


def test_rate(clock):
    rate = Rate(clock, total=50)
    clock.now += 2.0
    assert rate.read(150) == 50.0
    assert rate.read(150) == 0.0
    clock.now += 10.0
    assert rate.read(200) == 5.0


def test_process_cpu_seconds_grow_with_work():
    before = process_cpu_seconds()
    while process_cpu_seconds() == before:
        sum(range(1000))
