"""Published parameters on the ps: flat bytes behind a header, split over the shards.

A shard holds one uint8 variable, written by one assign and read by one read, so a
reader sees a whole part; it accepts the parts when all headers agree. A `version`
variable on shard 0 is only a hint that saves reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.cluster import sessions
from distrl.cluster.channel import Address
from distrl.core.errors import PeerUnreachable

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
