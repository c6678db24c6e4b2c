"""Wake-ups for one task: a tiny queue on another task's server.

A wake-up may be lost, or come twice: it says that there is news, never what.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from distrl.cluster import sessions
from distrl.cluster.channel import Address
from distrl.core.errors import PeerUnreachable

_CAPACITY = 2  # more would only wake for what has been seen


class Wakeups:
    """Either end of the queue `name` at `address`, whoever names it first makes it.

    Raises PeerUnreachable when the host does not answer within `timeout` s; the next
    call opens a new session.
    """

    def __init__(self, name: str, address: Address, timeout: float = 10.0):
        self._name, self._address, self._timeout = name, address, timeout
        self._session: tf.Session | None = None

    def _open(self, stopping: threading.Event | None = None) -> None:
        graph = tf.Graph()
        with graph.as_default(), tf.device(self._address.device):
            queue = tf.FIFOQueue(_CAPACITY, [tf.bool], [[]], shared_name=self._name)
            wake = tf.cond(
                queue.size() < _CAPACITY, lambda: queue.enqueue(True), tf.no_op
            )
            wait = queue.dequeue()
        self._session = sessions.open_session(
            graph, self._address.host, self._timeout, stopping
        )
        graph.finalize()
        make = self._session.make_callable
        self._wake = make(wake, accept_options=True)
        self._wait = make(wait, accept_options=True)

    def wake(self) -> None:
        """Leaves a wake-up, unless enough of them are there."""
        self._run(lambda: self._wake(options=sessions.limited(self._timeout)))

    def wait(self, timeout: float, stopping: threading.Event | None = None) -> bool:
        """Whether a wake-up came within `timeout` s."""

        def dequeue() -> bool:
            try:
                self._wait(options=sessions.limited(timeout))
                return True
            except tf.errors.DeadlineExceededError:
                return False

        return self._run(dequeue, stopping)

    def _run(
        self,
        function: Callable[[], Any],
        stopping: threading.Event | None = None,
    ) -> Any:
        try:
            if self._session is None:
                self._open(stopping)
            return function()
        except (tf.errors.DeadlineExceededError, *sessions.PEER_ERRORS) as error:
            self.close()
            text = f"wake-ups at {self._address}: {error.message}"
            raise PeerUnreachable(text) from error

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            sessions.close_session(session)
