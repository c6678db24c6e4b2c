"""What tests of environments in processes share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrl.core.child_process import ChildProcess
from distrl.environments.slot_workers import PRELOAD

# The helpers of the tests of core, wherever pytest was started.
sys.path.append(str(Path(__file__).parents[1] / "core"))


def _shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[None]:
    """multiprocessing's own helpers are there before anything is counted; and what
    counts collects garbage, which is cheap once all modules are exempt from it."""
    gc.collect()
    gc.freeze()
    with ChildProcess(dict, "first", preload=PRELOAD) as child:
        child.start()
        child.wait_ready(60.0)
    yield
    gc.unfreeze()


@pytest.fixture
def nothing_left(fork_server: None) -> Iterator[None]:
    """Fails a test that leaves a process, thread, descriptor or shared memory behind:
    `pytestmark = pytest.mark.usefixtures("nothing_left")`."""
    from child_objects import Holdings, wait_until

    before, shared = Holdings(), _shared_memory()
    yield
    wait_until(
        lambda: not Holdings().added_since(before) and _shared_memory() <= shared,
        5.0,
        "descriptors, threads, children, shared memory to be given back",
    )
