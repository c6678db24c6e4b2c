"""Servers, and sessions towards them that cannot hang their caller."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow.compat.v1 as tf

from distrl.cluster import open_graphs
from distrl.cluster.spec import split_address
from distrl.core.errors import ConfigError, PeerUnreachable
from distrl.core.threads import StoppableThread, call_with_deadline

#: What a run towards a dead, closed or restarted peer raises.
PEER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.NotFoundError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


_SEEN_TWICE = "request was received twice"
_MAX_REPEATS = 5  # one is rare


class ServerSession(tf.Session):
    """A session at a server, whose calls are made again where it mistakes them.

    A server remembers the numbers of its last 100,000 requests and refuses, before it
    does anything, one that comes twice. As it draws each number in a new thread, from a
    generator seeded with 32 bits, it takes one new request in 43,000 for an old one.
    """

    def __init__(self, target: str, graph: tf.Graph):
        super().__init__(target, graph=graph)
        open_graphs.watch(graph)

    def run(self, *arguments: Any, **options: Any) -> Any:
        return _repeated(super().run, *arguments, **options)

    def make_callable(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        return partial(_repeated, super().make_callable(*arguments, **options))


def _repeated(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    for _ in range(_MAX_REPEATS):
        try:
            return call(*arguments, **options)
        except tf.errors.AbortedError as error:
            if _SEEN_TWICE not in error.message:
                raise
    return call(*arguments, **options)


def start_server(job: str, index: int, address: str) -> tf.distribute.Server:
    """A TensorFlow server that is a cluster of its own; it ends with the process.

    It listens on all interfaces, without authentication. Raises ConfigError naming
    the task and the address when the port is taken.
    """
    _, port = split_address(address)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ConfigError(
                f"{job}/{index}: cannot listen on {address}: {error.strerror}"
            ) from error
    config = tf.ConfigProto(
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=2,
        device_count={"GPU": 0},
    )
    cluster = tf.train.ClusterSpec({job: {index: address}})
    try:
        return tf.distribute.Server(cluster, job, index, config=config)
    except tf.errors.OpError as error:
        raise ConfigError(
            f"{job}/{index}: cannot listen on {address}: {error.message}"
        ) from error


def server_device(job: str, index: int) -> str:
    """The device of everything that lives on a task's server."""
    return f"/job:{job}/task:{index}/device:CPU:0"


def answers(address: str, timeout: float) -> bool:
    """Whether somebody listens there. A stopped process does, a killed one does not."""
    try:
        with socket.create_connection(split_address(address), timeout):
            return True
    except OSError:
        return False


def open_session(
    graph: tf.Graph,
    address: str,
    timeout: float,
    stopping: threading.Event | None = None,
) -> tf.Session:
    """A session straight to the server at `address`, which has answered once.

    Raises PeerUnreachable after at most about `timeout` s, or once `stopping` is set.
    """
    with graph.as_default():
        ping = tf.no_op()

    def create() -> tf.Session:
        if not answers(address, timeout):
            raise PeerUnreachable(f"nobody listens at {address}")
        session = ServerSession(f"grpc://{address}", graph=graph)
        session.run(ping)
        return session

    try:
        return call_with_deadline(create, timeout, f"session to {address}", stopping)
    except (TimeoutError, *PEER_ERRORS) as error:
        raise PeerUnreachable(f"no session to {address}: {error}") from error


def close_session(session: tf.Session, timeout: float = 1.0) -> None:
    """Closes a session; one whose peer is gone is left behind after `timeout` s."""
    closer = StoppableThread("close session", lambda stopping: session.close()).start()
    try:
        closer.join(timeout)
    except (TimeoutError, tf.errors.OpError):
        return


def limited(timeout: float) -> tf.RunOptions:
    """Options of a run that ends after `timeout` s with DeadlineExceededError."""
    return tf.RunOptions(timeout_in_ms=max(1, int(timeout * 1000)))
