"""Sender and receiver threads: everything arrives once, or is counted."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from distrl.cluster.messages import Producer
from distrl.core.errors import ChannelClosed, ConfigError
from distrl.core.specs import ArraySpec

pytestmark = pytest.mark.timeout(60)

ACTOR = Producer("actor", 0, 1)


def put(sender, *values, timeout=20.0, **more):
    return sender.put(np.array(values, np.int64), len(values), timeout, **more)


def read_all(receiver):
    """Closes the channel; the values of all messages that were in it."""
    receiver.close()
    values = []
    try:
        while True:
            message = receiver.get(timeout=20)
            values.append(message.record.tolist())
    except ChannelClosed:
        return values


# In order, all of it, up to END.


def test_messages_keep_their_order_up_to_end(bench):
    receiver, sender = bench.receiver(local=8), bench.sender()
    for value in range(6):
        assert put(sender, value, -value, version=value)
    sender.end()
    bench.wait_until(lambda: receiver.has_ended(ACTOR))
    messages = [receiver.get(timeout=20) for _ in range(6)]
    assert [m.record.tolist() for m in messages] == [[v, -v] for v in range(6)]
    assert [m.header.version for m in messages] == list(range(6))
    assert [m.header.total_rows for m in messages] == [2, 4, 6, 8, 10, 12]
    sender.join(20)
    assert receiver.get() is None  # ended is not closed: others may still send
    assert read_all(receiver) == []
    assert bench.books() == {"sent": 12, "received": 12, "lost": 0, "duplicates": 0}


def test_end_is_of_one_producer(bench):
    receiver = bench.receiver()
    first, second = bench.sender(task=0), bench.sender(task=1)
    first.end()
    bench.wait_until(lambda: receiver.has_ended(ACTOR))
    assert not receiver.has_ended(Producer("actor", 1, 1))
    assert not receiver.has_ended(Producer("actor", 0, 2))
    assert put(second, 5)
    assert receiver.get(timeout=20).record.tolist() == [5]


def test_what_is_in_a_closed_channel_is_still_read(bench):
    receiver, sender = bench.receiver(local=2), bench.sender()
    for value in range(5):  # more than fits locally
        assert put(sender, value)
    assert sender.flush(20)
    assert read_all(receiver) == [[0], [1], [2], [3], [4]]


def test_nothing_after_the_end_is_taken(bench):
    bench.receiver()
    sender = bench.sender()
    sender.end()
    sender.join(20)
    assert not sender.alive
    assert put(sender, 1, timeout=0.0) is False
    assert bench.books()["sent"] == 0


def test_random_puts_against_short_gets_lose_nothing(bench):
    receiver, pause = bench.receiver(capacity=2, local=1), threading.Event()
    producers, per_producer = 3, 80

    def produce(task: int) -> None:
        rng = np.random.default_rng(task)
        sender = bench.sender(task, capacity=2)
        for number in range(per_producer):
            pause.wait(rng.exponential(0.003))
            assert put(sender, *[number] * rng.integers(1, 4))
        sender.end()
        sender.join(20)

    threads = [threading.Thread(target=produce, args=(t,)) for t in range(producers)]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(99)
    got: dict[int, list[int]] = {task: [] for task in range(producers)}
    empty = 0
    while sum(map(len, got.values())) < producers * per_producer:
        message = receiver.get(timeout=rng.uniform(0.0, 0.004))
        if message is None:
            empty += 1
        else:
            got[message.header.task].append(int(message.record[0]))
    for thread in threads:
        thread.join(20)
    assert empty > 10  # time-outs did fall between the puts
    assert got == {task: list(range(per_producer)) for task in range(producers)}
    books = bench.books()
    assert books["sent"] == books["received"]
    assert books["lost"] == books["duplicates"] == 0


# The receiver's books.


def test_repeated_numbers_are_dropped_and_counted(bench, make_message):
    receiver, client = bench.receiver(), bench.client()
    for sequence, rows, total in [
        (1, 2, 2),
        (1, 2, 2),
        (2, 3, 5),
        (1, 2, 2),
        (2, 3, 5),
    ]:
        client.put(make_message(sequence, rows, total), 10)
    assert [len(values) for values in read_all(receiver)] == [2, 3]
    assert bench.books() == {"sent": 0, "received": 5, "lost": 0, "duplicates": 7}


def test_gaps_are_counted_in_rows(bench, make_message):
    receiver, client = bench.receiver(), bench.client()
    client.put(make_message(1, 2, 2), 10)
    client.put(make_message(4, 3, 12), 10)  # 2 and 3, with 7 rows, are missing
    client.put(make_message(5, 1, 13), 10)
    assert [len(values) for values in read_all(receiver)] == [2, 3, 1]
    assert bench.books() == {"sent": 0, "received": 6, "lost": 7, "duplicates": 0}
    assert list(receiver.rows_seen().values()) == [13]


def test_a_lost_first_message_is_a_gap(bench, make_message):
    receiver, client = bench.receiver(), bench.client()
    client.put(make_message(1, 0, 4), 10)
    read_all(receiver)
    assert bench.books()["lost"] == 4


def test_what_an_earlier_owner_had_is_no_gap(bench, make_message):
    receiver, client = bench.receiver(), bench.client()
    client.put(make_message(6, 2, 100), 10)
    client.put(make_message(7, 2, 102), 10)
    assert len(read_all(receiver)) == 2
    assert bench.books() == {"sent": 0, "received": 4, "lost": 0, "duplicates": 0}


def test_a_restarted_producer_counts_anew(bench, make_message):
    receiver, client = bench.receiver(), bench.client()
    client.put(make_message(3, 2, 9), 10)
    client.put(make_message(1, 2, 2, incarnation=2), 10)
    client.put(make_message(1, 2, 2, task=1), 10)
    assert len(read_all(receiver)) == 3
    assert bench.books() == {"sent": 0, "received": 6, "lost": 0, "duplicates": 0}
    seen = receiver.rows_seen()
    assert sorted(seen.values()) == [2, 2, 2]
    assert {tuple(name.split("/")[1:]) for name in seen} == {
        ("0", "1"),
        ("0", "2"),
        ("1", "1"),
    }


def test_sizes_and_capacities(bench, make_message):
    receiver, client = bench.receiver(capacity=4, local=1), bench.client()
    for sequence in range(1, 5):  # one is local, one in the thread's hand
        client.put(make_message(sequence, 1, sequence), 10)
    bench.wait_until(lambda: receiver.size <= 3)
    assert receiver.capacity == 5 and receiver.name == bench.name


# Waiting, refusing, giving up.


def test_a_full_channel_holds_its_producer_back_and_loses_nothing(bench):
    receiver = bench.receiver(capacity=1, local=1)
    sender = bench.sender(capacity=1, put_timeout_secs=0.05)
    values = iter(range(100))
    taken = []
    while put(sender, value := next(values), timeout=0.5):
        taken.append(value)
    assert 3 <= len(taken) <= 6  # sender 1, under way 1, queue 1, thread 1, local 1
    assert not sender.has_room and sender.size == 1
    assert not sender.flush(0.1)
    got = [receiver.get(timeout=20).record[0] for _ in taken]
    assert sender.flush(20)
    assert put(sender, value)
    assert got + [receiver.get(timeout=20).record[0]] == [*taken, value]
    books = bench.books()
    assert books["sent"] == books["received"] == len(taken) + 1 and books["lost"] == 0


def test_closing_counts_what_was_pending_as_lost(bench):
    receiver = bench.receiver(capacity=1, local=1)
    sender = bench.sender(capacity=1)
    sent = 0
    while put(sender, 0, 0, timeout=0.5):
        sent += 2
    read = read_all(receiver)  # closes, with a put under way and an item behind it
    assert sender.flush(20)
    sender.end()
    sender.join(20)
    books = bench.books()
    assert books["sent"] == sent
    assert books["received"] == sum(map(len, read)) < sent
    assert books["sent"] == books["received"] + books["lost"]


def test_an_abandoned_sender_ends_and_counts(bench):
    bench.owner(capacity=1)
    sender = bench.sender(capacity=2, put_timeout_secs=0.5)
    while put(sender, 1, timeout=0.5):
        pass
    results = []
    blocked = threading.Thread(target=lambda: results.append(put(sender, 1)))
    blocked.start()
    start = time.monotonic()
    sender.abandon()
    assert time.monotonic() - start < 0.5  # it only says so
    sender.join(10)
    assert time.monotonic() - start < 5
    blocked.join(10)
    assert results == [False]
    assert sender.flush(0)
    books = bench.books()
    assert books["lost"] == books["sent"] - 1  # one is in the queue


def test_a_sender_towards_nobody_can_be_abandoned(bench):
    sender = bench.sender(open_timeout_secs=60.0)  # the channel is never opened
    assert put(sender, 1, 2, 3)
    sender.end()
    start = time.monotonic()
    sender.join(0.2)
    assert time.monotonic() - start < 6
    assert bench.books() == {"sent": 3, "received": 0, "lost": 3, "duplicates": 0}


def test_refused_rows_are_in_the_books(bench):
    bench.receiver()
    bench.sender().refuse(5)
    assert bench.books() == {"sent": 5, "received": 0, "lost": 5, "duplicates": 0}


# Errors.


def test_a_record_that_does_not_fit_is_refused_at_put(bench):
    bench.receiver()
    sender = bench.sender()
    with pytest.raises(ValueError, match=rf"{bench.name}.*float64"):
        sender.put(np.zeros(2), 2, 1.0)
    assert put(sender, 1)  # it is the caller's fault alone


def test_an_error_of_the_sender_reaches_flush_and_put(bench):
    bench.receiver()
    sender = bench.sender(spec=bench.spec(record=ArraySpec((), "float32")))
    sender.put(np.zeros(1, np.float32), 1, 20.0)
    with pytest.raises(ConfigError, match="float32"):
        sender.flush(20)
    with pytest.raises(ConfigError, match="float32"):
        sender.put(np.zeros(1, np.float32), 1, 20.0)
    with pytest.raises(ConfigError):
        sender.has_room  # noqa: B018
    with pytest.raises(ConfigError):
        sender.join(20)


def test_an_error_of_the_receiver_reaches_get(bench):
    receiver = bench.receiver()
    broken = [np.zeros(3, np.int64), np.zeros(1, np.int64)]  # half a header
    results = []

    def blocked() -> None:
        try:
            receiver.get(timeout=30)
        except TypeError as error:
            results.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    bench.client().put(broken, 10)
    thread.join(10)
    assert len(results) == 1
    with pytest.raises(TypeError):
        receiver.get()


def test_a_job_hears_of_the_receivers_end_when_it_can_see_it(bench):
    receiver = bench.receiver()
    bench.news.clear()
    receiver.close()
    assert bench.news.wait(10)
    with pytest.raises(ChannelClosed):
        receiver.get(timeout=0.0)
