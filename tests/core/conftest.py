"""Children for the tests of the process contract, and what looks after them."""

import pytest
from child_objects import LIMITS, Counter, Holdings, wait_until

from distrl.core.child_process import (
    START_METHODS,
    ChildProcess,
    close_all,
)


@pytest.fixture(scope="session")
def servers():
    """multiprocessing's own helpers are there before anything is counted."""
    with ChildProcess(Counter, "first") as child:
        child.start()
        child.wait_ready(30.0)


@pytest.fixture
def nothing_left(servers):
    before = Holdings()
    yield
    wait_until(
        lambda: not Holdings().added_since(before),
        5.0,
        "descriptors, threads, children",
    )


@pytest.fixture(params=START_METHODS)
def start_method(request):
    return request.param


@pytest.fixture
def new_child(nothing_left):
    """Makes children, started or not, that are closed after the test."""
    children = []

    def make(
        factory=Counter, name="child 7", method="forkserver", ready=True, **kwargs
    ):
        child = ChildProcess(factory, name, method, **({"limits": LIMITS} | kwargs))
        children.append(child)
        if ready:
            child.start()
            child.wait_ready()
        return child

    yield make
    close_all(children)
