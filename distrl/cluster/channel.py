"""A TF FIFOQueue that lives on one host: its owner's end and everybody else's.

One end is one small graph and one session straight to the host's server. The owner
creates the queue and then says so in a variable beside it; a client reads that first,
so it never creates a queue of its own under a name that does not exist yet. The owner
is the task that reads; one that has no server owns its queue on somebody else's.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.cluster import sessions
from distrl.cluster.messages import ChannelSpec
from distrl.core import specs
from distrl.core.errors import ChannelClosed, ConfigError, PeerUnreachable
from distrl.core.threads import Deadline

_READ_SECS = 2.0  # of one look at what the owner says


class Readiness(NamedTuple):
    """What an owner says about its channel once it is open."""

    run_id: str
    incarnation: int
    digest: str
    capacity: int
    description: dict[str, str]
    owner: str  # job/task

    @property
    def shared_name(self) -> str:
        return f"{self.run_id}/{self.incarnation}"


@dataclasses.dataclass(frozen=True)
class Address:
    """The task on whose server a channel or a variable lives."""

    job: str
    index: int
    host: str  # host:port

    def __str__(self) -> str:
        return f"{self.job}/{self.index} at {self.host}"

    @property
    def device(self) -> str:
        return sessions.server_device(self.job, self.index)


def text_variable(name: str) -> tf.Tensor:
    """The handle of a string variable that all graphs of a server share by name."""
    return tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=name)


def read_text(handle: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string)


def build_queue(spec: ChannelSpec, readiness: Readiness) -> tf.QueueBase:
    """The channel's queue, in the current graph and on the current device."""
    return tf.FIFOQueue(
        readiness.capacity,  # the owner's: a queue has one
        [tf.as_dtype(dtype) for dtype in spec.dtypes],
        shared_name=f"{spec.queue_name}/{readiness.shared_name}",
    )


class ChannelOwner:
    """The end that reads. `address` is where the queue lives: the owner's own server,
    of this `target`, or another's, where that is None.

    Another's may be lost: then, all calls raise PeerUnreachable, within `timeout` s but
    for `get`.
    """

    def __init__(
        self,
        spec: ChannelSpec,
        address: Address,
        target: str | None,
        run_id: str,
        incarnation: int,
        timeout: float = 10.0,
        owner: str = "",
    ):
        """`owner` is the job/task that reads, where that is not the host."""
        self.spec, self.address, self._timeout = spec, address, timeout
        self.is_here = target is not None
        readiness = Readiness(
            run_id,
            incarnation,
            spec.digest,
            spec.capacity,
            specs.describe(spec.record),
            owner or f"{address.job}/{address.index}",
        )
        graph = tf.Graph()
        with graph.as_default(), tf.device(address.device):
            queue = build_queue(spec, readiness)
            self._dequeue = queue.dequeue()
            self._size = queue.size()
            self._close = queue.close(cancel_pending_enqueues=True)
            say_ready = tf.raw_ops.AssignVariableOp(
                resource=text_variable(f"ready/{spec.queue_name}"),
                value=tf.constant(json.dumps(readiness)),
            )
        if target is None:
            self._session = sessions.open_session(graph, address.host, timeout)
        else:
            self._session = sessions.ServerSession(target, graph=graph)
        graph.finalize()
        self._run(self._size)  # creates the queue
        self._run(say_ready)
        self._get = self._session.make_callable(self._dequeue)

    def get(self) -> list[np.ndarray]:
        """The next message's components; waits for it, untimed.

        Raises ChannelClosed once the queue is closed and empty.
        """
        try:
            return self._get()
        except (tf.errors.OutOfRangeError, tf.errors.CancelledError) as error:
            raise ChannelClosed(f"channel {self.spec.name} has ended") from error
        except sessions.PEER_ERRORS as error:
            raise self._unreachable(error) from error

    @property
    def size(self) -> int:
        """Messages in the queue."""
        return int(self._run(self._size))

    def close(self) -> None:
        """Refuses further puts; what is in the queue can still be read."""
        self._run(self._close)

    def _run(self, fetch: Any) -> Any:
        try:
            return self._session.run(fetch, options=sessions.limited(self._timeout))
        except (tf.errors.DeadlineExceededError, *sessions.PEER_ERRORS) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: tf.errors.OpError) -> PeerUnreachable:
        what = f"channel {self.spec.queue_name} at {self.address}"
        return PeerUnreachable(f"{what}: {error.message}")


class ChannelClient:
    """The end of everybody else: puts messages into a queue on another host.

    Raises PeerUnreachable when the owner is not there, or not ready, within `timeout`
    s or before `stopping` is set, and ConfigError when its records look different.
    `run_id` None takes any run's.
    """

    def __init__(
        self,
        spec: ChannelSpec,
        address: Address,
        run_id: str | None,
        timeout: float,
        stopping: threading.Event | None = None,
    ):
        self.spec, self.address = spec, address
        self._graph = tf.Graph()
        with self._graph.as_default(), tf.device(address.device):
            ready = read_text(text_variable(f"ready/{spec.queue_name}"))
        deadline = Deadline(timeout)
        self._session = sessions.open_session(
            self._graph, address.host, timeout, stopping
        )
        try:
            self.readiness = self._wait_until_ready(ready, run_id, deadline, stopping)
            self._check_digest()
            self._put = self._build_put()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(
        self,
        ready: tf.Tensor,
        run_id: str | None,
        deadline: Deadline,
        stopping: threading.Event | None,
    ) -> Readiness:
        pause, seen = stopping or threading.Event(), "it has not opened it"
        while not deadline.passed:
            try:
                limit = min(_READ_SECS, deadline.remaining)
                text = self._session.run(ready, options=sessions.limited(limit))
                readiness = Readiness(*json.loads(text))
                if run_id in (None, readiness.run_id):
                    return readiness
                seen = f"it belongs to run {readiness.run_id}, not to {run_id}"
            except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
                pass
            except (tf.errors.DeadlineExceededError, *sessions.PEER_ERRORS) as error:
                raise PeerUnreachable(f"{self._what}: {error.message}") from error
            if pause.wait(min(0.05, deadline.remaining)):
                break
        raise PeerUnreachable(f"{self._what}: {seen}")

    @property
    def _what(self) -> str:
        return f"channel {self.spec.queue_name} of {self.address}"

    def _check_digest(self) -> None:
        if self.readiness.digest != self.spec.digest:
            raise ConfigError(
                f"{self._what}: its records are {self.readiness.description}, "
                f"ours are {specs.describe(self.spec.record)}"
            )

    def _build_put(self) -> Any:
        with self._graph.as_default(), tf.device(self.address.device):
            inputs = [tf.placeholder(dtype) for dtype in self.spec.dtypes]
            enqueue = build_queue(self.spec, self.readiness).enqueue(inputs)
        self._graph.finalize()
        return self._session.make_callable(enqueue, inputs, accept_options=True)

    def put(self, components: list[np.ndarray], timeout: float) -> None:
        """Raises TimeoutError after `timeout` s (the message may have arrived),
        ChannelClosed, or PeerUnreachable."""
        try:
            self._put(*components, options=sessions.limited(timeout))
        except tf.errors.DeadlineExceededError as error:
            raise TimeoutError(f"{self._what}: full for {timeout:.1f} s") from error
        except tf.errors.CancelledError as error:
            raise ChannelClosed(f"{self._what} is closed") from error
        except sessions.PEER_ERRORS as error:
            raise PeerUnreachable(f"{self._what}: {error.message}") from error

    def close(self) -> None:
        sessions.close_session(self._session)
