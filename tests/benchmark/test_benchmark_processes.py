"""Apart from the other tests, for a spawned process imports the file of its target."""

import pytest

from distrl.benchmark import channels


def fails(connection, *arguments):
    raise OSError("planted")


def waits(connection, *arguments):
    connection.recv()


def test_a_dead_process_is_noticed_at_once(capfd):
    with pytest.raises(RuntimeError, match="a process has died"):
        with channels.running(waits) as owner, channels.running(fails) as client:
            channels.collected(1, owner, client)
    assert "planted" in capfd.readouterr().err


def test_a_process_ends_when_it_is_told(capfd):
    with channels.running(waits) as connection:
        assert not connection.poll()
    assert capfd.readouterr().err == ""
