"""Published parameters on the ps: flat bytes behind a header, split over the shards.

A shard holds one uint8 variable, written by one assign and read by one read, so a
reader sees a whole part; it accepts the parts when all headers agree. A `version`
variable on shard 0 is only a hint that saves reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.cluster import sessions
from distrl.cluster.channel import Address
from distrl.core.errors import PeerUnreachable
from distrl.core.threads import Deadline, StoppableThread

_MAGIC = 0x6469737472  # marks a header of this layout
_HEADER_BYTES = 32  # int64: magic, version, number of all bytes, owner's run


class PartWrite(NamedTuple):
    """The ops that write a part, in a graph on the device of its ps."""

    part_ph: tf.Tensor  # uint8 [bytes], with its header
    version_ph: tf.Tensor  # int64 []
    write: tf.Operation  # the part alone
    write_and_hint: tf.Operation  # then the version: of the part on shard 0


def build_write(name: str) -> PartWrite:
    """Writes one part of the set `name`, in the current graph and on its device."""
    part, version = _variables(name)
    part_ph = tf.placeholder(tf.uint8, [None])
    version_ph = tf.placeholder(tf.int64, [])
    write = tf.raw_ops.AssignVariableOp(resource=part, value=part_ph)
    with tf.control_dependencies([write]):
        hint = tf.raw_ops.AssignVariableOp(resource=version, value=version_ph)
    return PartWrite(part_ph, version_ph, write, hint)


def _variables(name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """The handles of the part and of the hint."""
    part = tf.raw_ops.VarHandleOp(
        dtype=tf.uint8, shape=None, shared_name=f"{name}/part"
    )
    version = tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[], shared_name=f"{name}/version"
    )
    return part, version


class _Shard:
    """One ps: a session, and the ops on its part."""

    def __init__(self, name: str, address: Address, timeout: float):
        self.address = address
        graph = tf.Graph()
        with graph.as_default(), tf.device(address.device):
            part, version = _variables(name)
            part_ph, version_ph, write, hint = build_write(name)
            read = tf.raw_ops.ReadVariableOp(resource=part, dtype=tf.uint8)
            read_hint = tf.raw_ops.ReadVariableOp(resource=version, dtype=tf.int64)
        self._session = sessions.open_session(graph, address.host, timeout)
        graph.finalize()
        make = self._session.make_callable
        self._calls: dict[str, Callable[..., Any]] = {
            "write": make(write, [part_ph], accept_options=True),
            "write_and_hint": make(hint, [part_ph, version_ph], accept_options=True),
            "read": make(read, accept_options=True),
            "read_hint": make(read_hint, accept_options=True),
        }

    def call(self, name: str, *feeds: Any, timeout: float) -> Any:
        """One op; None when the variable is not there yet."""
        try:
            return self._calls[name](*feeds, options=sessions.limited(timeout))
        except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
            return None
        except (tf.errors.DeadlineExceededError, *sessions.PEER_ERRORS) as error:
            raise PeerUnreachable(f"{self.address}: {error.message}") from error

    def close(self) -> None:
        sessions.close_session(self._session)


class ParameterStore:
    """Reads and writes one named set of parameters on all ps.

    `run` tells the sets of different runs apart. Calls raise PeerUnreachable when a
    ps does not answer within `timeout` s; the next call opens a new session.
    """

    def __init__(
        self, name: str, addresses: Sequence[Address], run: int, timeout: float = 10.0
    ):
        self.name, self._addresses = name, list(addresses)
        self._run, self._timeout = run, timeout
        self._shards: list[_Shard | None] = [None] * len(self._addresses)
        self._written = -1

    def _call(self, index: int, name: str, *feeds: Any) -> Any:
        shard = self._shards[index]
        try:
            if shard is None:
                shard = _Shard(self.name, self._addresses[index], self._timeout)
                self._shards[index] = shard
            return shard.call(name, *feeds, timeout=self._timeout)
        except PeerUnreachable:
            if shard is not None:
                shard.close()
            self._shards[index] = None
            raise

    def write(self, version: int, parameters: np.ndarray) -> None:
        """Publishes uint8 `parameters` as `version`.

        A version that is written again must have the same bytes. Raises ValueError when
        the version goes back.
        """
        self._call(0, "write_and_hint", self.write_others(version, parameters), version)

    def write_others(self, version: int, parameters: np.ndarray) -> np.ndarray:
        """The same, but for the part of shard 0, which it returns with its header:
        whoever asks writes it, along with something else (`build_write`)."""
        if version < self._written:
            raise ValueError(f"version {version} after version {self._written}")
        self._written = version
        header = np.array([_MAGIC, version, parameters.size, self._run], np.int64)
        parts = np.array_split(parameters, len(self._addresses))
        wholes = [np.concatenate([header.view(np.uint8), part]) for part in parts]
        for index in range(1, len(wholes)):
            self._call(index, "write", wholes[index])
        return wholes[0]

    def version(self) -> int:
        """The newest version that is whole, -1 when there is none."""
        hint = self._call(0, "read_hint")
        return -1 if hint is None else int(hint)

    def read(
        self, first: np.ndarray | None = None, attempts: int = 5
    ) -> tuple[int, np.ndarray] | None:
        """(version, uint8 parameters); None when there are none, or when a writer
        was in between at every attempt. `first` is shard 0's part, if it is at hand."""
        for _ in range(attempts):
            parts = [self._call(0, "read") if first is None else first]
            parts += [self._call(i, "read") for i in range(1, len(self._addresses))]
            first = None
            if any(part is None for part in parts):
                return None
            headers = [part[:_HEADER_BYTES].view(np.int64) for part in parts]
            if headers[0][0] != _MAGIC or headers[0][3] != self._run:
                return None
            if all(np.array_equal(header, headers[0]) for header in headers):
                body = np.concatenate([part[_HEADER_BYTES:] for part in parts])
                return int(headers[0][1]), body
        return None

    def close(self) -> None:
        for shard in self._shards:
            if shard is not None:
                shard.close()


class ParameterPublisher:
    """A thread that writes the newest parameters it was given.

    `before_write` is called ahead of each write and may raise (fencing). An error
    reaches the owner at the next `publish`.
    """

    def __init__(
        self,
        store: ParameterStore,
        before_write: Callable[[], None] = lambda: None,
    ):
        self._store, self._before_write = store, before_write
        self._changed = threading.Condition()
        self._newest: tuple[int, np.ndarray] | None = None
        self._writing = False
        self.published = -1
        self._thread = StoppableThread(
            "publish parameters", self._run, self._wake
        ).start()

    def publish(self, version: int, parameters: np.ndarray) -> None:
        """Replaces what waits; does not wait for the write."""
        self._thread.check()
        with self._changed:
            self._newest = (version, parameters)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Waits until nothing is left to write; False after `timeout` s."""
        with self._changed:
            done = self._changed.wait_for(self._idle_or_ended, timeout)
        self._thread.check()
        return done

    def _idle_or_ended(self) -> bool:
        idle = self._newest is None and not self._writing
        return idle or not self._thread.alive

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self, stopping: threading.Event) -> None:
        while (newest := self._next(stopping)) is not None:
            self._before_write()
            self._store.write(*newest)
            with self._changed:
                self._writing, self.published = False, newest[0]
                self._changed.notify_all()

    def _next(self, stopping: threading.Event) -> tuple[int, np.ndarray] | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._newest is not None or stopping.is_set()
            )
            newest, self._newest = self._newest, None
            self._writing = newest is not None
            return newest

    def stop(self, timeout: float) -> None:
        """Writes what waits, then ends. Raises what ended the thread."""
        self._thread.stop()
        self._wake()
        try:
            self._thread.join(timeout)
        finally:
            self._store.close()


class ParameterPuller:
    """A thread that keeps the newest published parameters at hand.

    It looks every `period_secs`. Versions never go back. A ps that does not answer is
    tried again; `error_after_secs` without an answer end the thread, and `newest`
    raises.
    """

    def __init__(
        self, store: ParameterStore, period_secs: float, error_after_secs: float
    ):
        self._store, self._period = store, period_secs
        self._patience = error_after_secs
        self._version = -1
        self._changed = threading.Condition()
        self._box: tuple[int, np.ndarray] | None = None
        self._thread = StoppableThread("pull parameters", self._run, self._wake).start()

    def _run(self, stopping: threading.Event) -> None:
        silence = Deadline(self._patience)
        while not stopping.is_set():
            try:
                self._pull()
                silence = Deadline(self._patience)
            except PeerUnreachable:
                if silence.passed:
                    raise
            stopping.wait(self._period)

    def _pull(self) -> None:
        if self._store.version() <= self._version:
            return
        found = self._store.read()
        if found is not None and found[0] > self._version:
            with self._changed:
                self._version, self._box = found[0], found
                self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def newest(self) -> tuple[int, np.ndarray] | None:
        """What has come since the last call, or None. Raises what ended the thread."""
        with self._changed:
            box, self._box = self._box, None
        if box is None:
            self._thread.check()
        return box

    def wait(self, timeout: float) -> bool:
        """Waits for something to take, or for an error that `newest` raises."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._box is not None or not self._thread.alive, timeout
            )

    def stop(self, timeout: float) -> None:
        """Ends the thread. Raises what has ended it before."""
        self._thread.stop()
        try:
            self._thread.join(timeout)
        finally:
            self._store.close()
