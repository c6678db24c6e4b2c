"""Runs that are cleaned up behind a test."""

from typing import Any

import pytest
from local_run import LocalRun


@pytest.fixture
def make_run(tmp_path, servers_of_test):
    """Calls of LocalRun."""
    made = []

    def make(**arguments: Any) -> LocalRun:
        made.append(LocalRun(tmp_path / str(len(made)), servers_of_test, **arguments))
        return made[-1]

    yield make
    for run in made:
        run.stop_all()
