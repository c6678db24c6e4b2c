"""Requests that a server takes for ones it has seen."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster import sessions

pytestmark = pytest.mark.timeout(60)

TWICE = "From /job:ps:\nThe same RunGraph (Worker) request was received twice. …"


@pytest.fixture
def make_session(servers):
    """A session that adds 1 to a variable; its server mistakes the first `number` of
    requests, and says `message`."""
    opened = []

    def make(monkeypatch, number, message=TWICE):
        address, target = servers[0]
        graph = tf.Graph()
        with graph.as_default(), tf.device(address.device):
            variable = tf.raw_ops.VarHandleOp(
                dtype=tf.int64, shape=[], shared_name="counted requests"
            )
            zero = tf.constant(0, tf.int64)
            reset = tf.raw_ops.AssignVariableOp(resource=variable, value=zero)
            add_ph = tf.placeholder(tf.int64, [])
            add = tf.raw_ops.AssignAddVariableOp(resource=variable, value=add_ph)
            with tf.control_dependencies([add]):
                read = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.int64)
        session = sessions.ServerSession(target, graph=graph)
        opened.append(session)
        session.run(reset)
        left = [number]
        really = tf.Session._do_call

        def mistaking(self, function, *arguments):
            if left[0]:
                left[0] -= 1
                raise tf.errors.AbortedError(None, None, message)
            return really(self, function, *arguments)

        monkeypatch.setattr(tf.Session, "_do_call", mistaking)
        return session, read, add_ph

    yield make
    for session in opened:
        session.close()


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_request_that_is_mistaken_is_made_again(make_session, monkeypatch, number):
    session, read, add_ph = make_session(monkeypatch, number)
    assert session.run(read, {add_ph: np.int64(1)}) == 1


@pytest.mark.parametrize("number", [0, 1, 3])
def test_so_is_a_callable(make_session, monkeypatch, number):
    session, read, add_ph = make_session(monkeypatch, number)
    add = session.make_callable(read, [add_ph], accept_options=True)
    assert add(np.int64(5), options=sessions.limited(20.0)) == 5


def test_what_never_gets_through_is_raised(make_session, monkeypatch):
    session, read, add_ph = make_session(monkeypatch, 1000)
    with pytest.raises(tf.errors.AbortedError):
        session.run(read, {add_ph: np.int64(1)})


def test_a_session_that_was_really_aborted_is_not_tried_again(
    make_session, monkeypatch
):
    session, read, add_ph = make_session(monkeypatch, 1, "the server has restarted")
    with pytest.raises(tf.errors.AbortedError, match="restarted"):
        session.run(read, {add_ph: np.int64(1)})
