import pytest

from distrl.benchmark.marks import WARM_UP_MESSAGES, Mark, rates, receive_all, send_all


def test_rates_leave_out_the_warm_up_and_are_medians():
    marks = [
        Mark(0, 0.0, 0.0),
        Mark(10, 90.0, 50.0),  # the warm-up took 90 s
        Mark(20, 91.0, 50.1),  # 10 a second, 10 ms each
        Mark(70, 93.0, 50.35),  # 25 a second, 5 ms each
        Mark(110, 95.0, 51.15),  # 20 a second, 20 ms each
    ]
    assert rates(marks) == pytest.approx((20.0, 10.0))


def test_both_ends_mark_the_same_messages():
    sent = []
    at_sender = send_all(sent.append, secs=1e-9, repeats=3)
    messages = iter(sent)
    at_receiver = receive_all(lambda: next(messages), repeats=3)
    assert sent == [0] * WARM_UP_MESSAGES + [1, 2, 3, 4]
    assert next(messages, None) is None
    counts = [mark.messages for mark in at_sender]
    assert counts == [mark.messages for mark in at_receiver]
    assert counts == [0, *range(WARM_UP_MESSAGES, WARM_UP_MESSAGES + 4)]
    assert rates(at_receiver)[0] > 0
