"""What holds for every test."""

from __future__ import annotations

import threading
import time

import pytest

_GRACE_SECS = 2.0  # for threads that are about to end


@pytest.fixture(autouse=True)
def no_thread_left():
    """Fails a test that leaves a thread behind which would keep a program alive."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + _GRACE_SECS
    for thread in set(threading.enumerate()) - before:
        if not thread.daemon and "timeout" not in thread.name:  # pytest-timeout's own
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"the test left thread {thread.name!r}"
