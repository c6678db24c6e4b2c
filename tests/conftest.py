"""What holds for every test."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from pytest_timeout import timeout_timer

_GRACE_SECS = 2.0  # for threads that are about to end
_STUCK_SECS = 60.0  # behind a test's own limit


def pytest_collection_modifyitems(config, items):
    """Forking is refused once TensorFlow is loaded, as it is in a run of all tests:
    `test_fork_start_method` runs what forks in a process of its own."""
    if "tensorflow" not in sys.modules:
        return
    forks = [item for item in items if "fork" in _parameters(item)]
    items[:] = [item for item in items if item not in forks]
    config.hook.pytest_deselected(items=forks)


def _parameters(item):
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    return [value for value in values if isinstance(value, str)]


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item, settings):
    """The signal of a passed limit fails a test, unless it hangs outside of Python:
    then its process is ended."""
    limit = settings.timeout + _STUCK_SECS
    item.last_resort = threading.Timer(limit, timeout_timer, (item, settings))
    item.last_resort.name = "timeout"
    item.last_resort.daemon = True
    item.last_resort.start()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_cancel_timer(item):
    if hasattr(item, "last_resort"):  # not a module that cannot be imported
        item.last_resort.cancel()
    return (yield)


@pytest.fixture
def servers_of_test(monkeypatch):
    """RentedServers: what starts servers in this test gets those."""
    from spare_servers import RentedServers  # loads TensorFlow

    from distrl.cluster import sessions

    servers = RentedServers()
    monkeypatch.setattr(sessions, "start_server", servers.start)
    yield servers
    servers.give_back()


@pytest.fixture(autouse=True)
def no_thread_left():
    """Fails a test that leaves a thread behind which would keep a program alive."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + _GRACE_SECS
    for thread in set(threading.enumerate()) - before:
        if not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"the test left thread {thread.name!r}"
