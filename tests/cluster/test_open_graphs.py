"""Graphs are counted as long as they are kept, and what a loop adds is seen."""

import gc
import weakref

import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster import open_graphs, sessions
from distrl.cluster.local_session import local_session


@pytest.fixture(autouse=True)
def only_own_graphs(monkeypatch):
    """Threads of earlier tests may still end, and let go of their graphs."""
    monkeypatch.setattr(open_graphs, "_graphs", weakref.WeakSet())


def counted():
    gc.collect()  # graphs are cycles
    return open_graphs.num_operations()


def test_operations_are_counted_as_long_as_their_graph_is_kept():
    before = counted()
    graph = tf.Graph()
    with graph.as_default():
        tf.no_op()
    session = local_session(graph)
    assert counted() == before + 1
    with graph.as_default():
        tf.no_op()
    assert counted() == before + 2
    session.close()
    del session, graph
    assert counted() == before


@pytest.mark.timeout(60)
def test_graphs_of_sessions_at_servers_are_counted():
    server = tf.train.Server.create_local_server()
    before = counted()
    graph = tf.Graph()
    session = sessions.open_session(graph, server.target.removeprefix("grpc://"), 10.0)
    assert counted() == before + 1  # the ping
    sessions.close_session(session)
