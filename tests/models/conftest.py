"""Graphs with sessions that are closed behind a test."""

import pytest


@pytest.fixture
def made():
    """Makes learners and actors, and closes them."""
    all_of_them = []

    def make(kind, *args, **kwargs):
        all_of_them.append(kind(*args, **kwargs))
        return all_of_them[-1]

    yield make
    for each in all_of_them:
        each.session.close()
