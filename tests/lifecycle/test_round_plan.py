"""Plans are read as they were written."""

import time

import pytest

from distrl.lifecycle.round_plan import RoundPlan, Share

NOW = time.time_ns()  # what an incarnation is: more than a float can hold
SHARES = {2: Share(NOW + 1, 0), 0: Share(NOW, 1), 11: Share(NOW + 3, 0)}


@pytest.mark.parametrize(
    "written",
    [
        RoundPlan(0, 0, {}),
        RoundPlan(7, 123456789012, SHARES),
        RoundPlan(8, 3, {}, last=True),
        RoundPlan(9, 4, SHARES, hosts={0: NOW + 5, 1: NOW + 6}, learner=NOW + 7),
    ],
)
def test_decoded_as_encoded(written):
    data = written.encode()
    assert isinstance(data, bytes)
    read = RoundPlan.decode(data)
    assert read == written and isinstance(read.last, bool)
    assert all(isinstance(share, Share) for share in read.shares.values())


def test_who_owns_what():
    written = RoundPlan(7, 1, SHARES)
    assert written.of_memory(0) == {2: NOW + 1, 11: NOW + 3}
    assert written.of_memory(1) == {0: NOW}
    assert written.of_memory(2) == {}
    assert written.memories == {0, 1}
    assert RoundPlan(8, 1, {}, last=True).memories == set()
