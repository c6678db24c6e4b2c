"""The books of a run, above all those of tasks that died."""

import json
import random

import pytest

from distrl.lifecycle.beat import Beat
from distrl.lifecycle.books import Books


def beat(name, incarnation=1, totals=None, seen=None, gauges=None):
    job, task = name.split("/")
    found = {"totals": totals or {}, "seen": seen or {}, "gauges": gauges or {}}
    return Beat(job, int(task), incarnation, 1, **found)


def books(sent, lost, seen, dead=True):
    """An actor's last beat, and the rows of it that two memories have seen."""
    made = Books()
    made.take(beat("actor/0", 7, {"sent/e": sent, "lost/e": lost}))
    made.take(beat("actor/1", 5))
    for index, rows in enumerate(seen):
        report = {"e": {"actor/0/7": rows, "actor/1/5": 1000}}
        made.take(beat(f"memory/{index}", totals={"received/e": rows}, seen=report))
    if dead:
        made.close("actor/0", 7)
    return made


@pytest.mark.parametrize(
    "sent, lost, seen, expected",
    [
        (100.0, 0.0, (60, 40), {"sent/e": 100, "lost/e": 0}),  # nothing on its way
        (100.0, 0.0, (60, 30), {"sent/e": 100, "lost/e": 10}),  # 10 never came
        (100.0, 0.0, (60, 55), {"sent/e": 115, "lost/e": 0}),  # 15 behind its last beat
        (100.0, 5.0, (60, 30), {"sent/e": 100, "lost/e": 10}),  # it knew of 5 of them
        (100.0, 0.0, (), {"sent/e": 100, "lost/e": 100}),
    ],
)
def test_the_books_of_a_dead_actor_are_closed(sent, lost, seen, expected):
    made = books(sent, lost, seen)
    totals = made.totals()
    assert {key: totals.get(key, 0) for key in expected} == expected
    assert totals["sent/e"] == sum(seen) + totals.get("lost/e", 0)
    received = {"received/e": sum(seen)} if seen else {}
    assert made.job_totals()["actor"] | received == totals


def test_who_lives_is_believed():
    assert books(100.0, 0.0, (60, 30), dead=False).totals()["sent/e"] == 100
    assert books(100.0, 0.0, (60, 30), dead=False).totals()["lost/e"] == 0


def test_another_life_of_it_is_another_producer():
    made = books(100.0, 0.0, (60, 40))
    made.take(beat("actor/0", 8, {"sent/e": 5.0}))
    assert made.totals()["sent/e"] == 105 and made.totals()["lost/e"] == 0


def test_a_channel_that_only_the_receiver_knows_of():
    """It died before it could say that it had sent anything."""
    made = Books()
    made.take(beat("actor/0", 7, {"env_steps": 3.0}))
    made.take(beat("memory/0", totals={"received/e": 8}, seen={"e": {"actor/0/7": 8}}))
    made.close("actor/0", 7)
    assert made.totals() == {"env_steps": 3.0, "received/e": 8, "sent/e": 8}


@pytest.mark.parametrize("seed", range(20))
def test_sent_is_received_plus_lost_whoever_dies(seed):
    """Random actors, of which some die with rows unsaid, unread or on their way."""
    rng, made = random.Random(seed), Books()
    seen = [{}, {}]
    received = 0
    for actor in range(6):
        numbered = [rng.randrange(50) for _ in range(2)]  # by memory
        dies = rng.random() < 0.5
        arrived = [rng.randrange(n + 1) if dies else n for n in numbered]
        unsaid = rng.randrange(min(sum(arrived), 9) + 1) if dies else 0
        made.take(beat(f"actor/{actor}", 3, {"sent/e": sum(numbered) - unsaid}))
        for memory in range(2):
            seen[memory][f"actor/{actor}/3"] = arrived[memory]
        received += sum(arrived)
        if dies:
            made.close(f"actor/{actor}", 3)
    for memory in range(2):
        totals = {"received/e": sum(seen[memory].values())}
        made.take(beat(f"memory/{memory}", totals=totals, seen={"e": seen[memory]}))
    totals = made.totals()
    assert totals["received/e"] == received
    assert totals["sent/e"] == received + totals.get("lost/e", 0)


def test_the_best_parameters_stay_the_best():
    made = Books()
    assert made.best == (0.0, None)
    made.take(beat("actor/0", 1, gauges={"best_return": -9.0, "best_version": 3}))
    assert made.best == (-9.0, 3)
    made.take(beat("actor/0", 1, gauges={"best_return": 7.0, "best_version": 5}))
    made.take(beat("actor/0", 2, gauges={}))  # started again
    made.take(beat("actor/0", 2, gauges={"best_return": 6.0, "best_version": 8}))
    assert made.best == (7.0, 5)
    made.take(beat("actor/0", 2, gauges={"best_return": 7.0, "best_version": 9}))
    assert made.best == (7.0, 9)


def pair(tried=100, unsure=0, seen=90, producer="lives", owner="lives", said=100):
    """An actor that has sent 100 rows, and the memory that got some of them."""
    made = Books()
    sent = beat("actor/0", 7, {"sent/e": float(said)})
    sent.tried = {"e": {"memory/0/4": (tried, unsure)}}
    made.take(sent)
    got = {"received/e": float(seen)}
    made.take(beat("memory/0", 4, got, {"e": {"actor/0/7": seen}}))
    for name, incarnation, fate in (("actor/0", 7, producer), ("memory/0", 4, owner)):
        if fate != "lives":
            made.close(name, incarnation, fate)
    return made


@pytest.mark.parametrize(
    "case, lost",
    [
        ({}, 0),  # on its way
        ({"producer": "left"}, 0),  # waits in the queue
        ({"owner": "left"}, 0),  # the producer may not know yet
        ({"producer": "left", "owner": "left", "seen": 100}, 0),
        ({"producer": "left", "owner": "left", "unsure": 10}, 10),  # given up, not seen
        ({"producer": "left", "owner": "left", "unsure": 30}, 10),  # 20 had arrived
        ({"producer": "left", "owner": "left", "unsure": 4}, 4),  # 6 are missing: a bug
        ({"owner": "died"}, 10),
        ({"producer": "died"}, 10),
        ({"producer": "died", "owner": "died"}, 10),
        ({"owner": "died", "tried": 95, "unsure": 5}, 5),  # 5 were never put
        ({"producer": "died", "tried": 95}, 10),
    ],
)
def test_what_is_lost_between_two_tasks(case, lost):
    assert pair(**case).totals().get("lost/e", 0) == lost


def test_rows_that_a_dead_producer_had_not_said():
    totals = pair(tried=60, seen=90, said=60, producer="died").totals()
    assert totals["sent/e"] == totals["received/e"] == 90 and not totals.get("lost/e")


def test_the_last_word_of_a_dead_owner_is_what_it_has_seen_of_each_producer():
    made = pair(owner="died")
    late = beat("memory/0", 4, {"received/e": 80.0}, {"e": {"actor/0/7": 90}})
    made.take(late)
    made.close("memory/0", 4)
    totals = made.totals()
    assert (totals["received/e"], totals["lost/e"]) == (90, 10)


def test_where_a_task_stands_is_known_by_its_newest_life_alone():
    made = Books()
    made.take(beat("learner/0", 1, {"learner_steps": 1000.0, "trained": 50.0}))
    made.close("learner/0", 1)
    assert made.totals()["learner_steps"] == 1000
    made.take(beat("learner/0", 2, {"learner_steps": 800.0, "trained": 5.0}))
    assert made.totals() == {"learner_steps": 800.0, "trained": 55.0}


def test_books_go_on_where_they_were_dumped():
    made = pair(unsure=10, producer="left", owner="left")
    made.take(beat("actor/1", 3, {"env_steps": 4.0}, gauges={"best_return": 2.0}))
    again = Books()
    again.take(beat("actor/1", 3, {"env_steps": 6.0}))  # it has beaten since
    again.recall(json.loads(json.dumps(made.dump())))
    assert again.totals() == made.totals() | {"env_steps": 6.0}
    assert again.best == (2.0, None)


def test_nobody_lives_in_the_books_of_a_run_that_is_over():
    made = pair(seen=100)
    made.take(beat("actor/1", 3, {"sent/e": 7.0}))
    made.close_all()
    assert made.totals() == {"sent/e": 107, "received/e": 100, "lost/e": 7}


def test_rows_of_a_producer_that_never_beat_were_sent():
    """It died before its first beat, or a ps 0 that knew of it did."""
    made = Books()
    report = {"e": {"actor/3/9": 25}}
    made.take(beat("memory/0", totals={"received/e": 25}, seen=report))
    assert made.totals() == {"received/e": 25, "sent/e": 25}
    made.take(beat("actor/3", 9, {"sent/e": 40}))  # it lives: its own count holds
    assert made.totals() == {"received/e": 25, "sent/e": 40}
