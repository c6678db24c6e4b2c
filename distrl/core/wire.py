"""Messages between a parent and its child process: frames on a Unix socket.

A frame is a header (bytes of the body, request id, kind) and a body, a pickle. The
kind and the id stand outside the pickle, so that a body that cannot be read still
has an addressee for the error.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from array import array
from collections import deque
from typing import Any

import cloudpickle

FACTORY, CALL, GET, SET, DESCRIPTOR, CLOSE = range(6)  # from the parent
READY, RESULT, ERROR, FATAL, CLOSED = range(10, 15)  # from the child

HEADER = struct.Struct("<QQB")
DESCRIPTOR_BYTE = b"\0"  # what carries a file descriptor, after its frame
_CHUNK = 1 << 16  # bytes to ask for at once
_LARGE_CHUNK = 1 << 18  # the same in the middle of a message known to be long


def dumps(value: Any) -> bytes:
    """`value` pickled; by value (cloudpickle) what plain pickle cannot name.

    Raises TypeError when neither can.
    """
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        try:
            return cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise TypeError(f"cannot be pickled: {error}") from error


def frame(kind: int, request: int, body: bytes) -> bytes:
    """The bytes of one message."""
    return HEADER.pack(len(body), request, kind) + body


class FrameReader:
    """Takes frames from a socket without ever waiting."""

    def __init__(self, end: socket.socket):
        self._end = end
        self._buffer = bytearray()
        self._chunk = _CHUNK

    def read(self) -> list[tuple[int, int, bytearray]]:
        """The messages that are complete by now, as (kind, request id, body).

        One system call at most. Raises EOFError when the other side is gone.
        """
        try:
            chunk = self._end.recv(self._chunk, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError as error:
            raise EOFError(str(error)) from error
        if not chunk:
            raise EOFError("the other side has closed")
        self._buffer += chunk
        return self._complete()

    def _complete(self) -> list[tuple[int, int, bytearray]]:
        buffer, start, frames = self._buffer, 0, []
        self._chunk = _CHUNK
        while len(buffer) - start >= HEADER.size:
            length, request, kind = HEADER.unpack_from(buffer, start)
            end = start + HEADER.size + length
            if end > len(buffer):
                self._chunk = _LARGE_CHUNK
                break
            frames.append((kind, request, buffer[start + HEADER.size : end]))
            start = end
        del buffer[:start]
        return frames


class Outbox:
    """Sends without ever waiting: what the socket does not take at once is kept.

    Two sides that both wrote with blocking calls could wait for each other for ever.
    """

    def __init__(self, end: socket.socket):
        self._end = end
        self._waiting: deque[tuple[memoryview, int | None]] = deque()

    def __bool__(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._waiting)

    def put(self, data: bytes, fd: int | None = None) -> None:
        """Sends `data` as far as it can, and keeps the rest for `flush`.

        `fd` goes along with the first byte, at the next flush; it is the outbox's now.
        """
        sent = 0
        if fd is None and not self._waiting:
            try:
                sent = self._send(data, None)
            except OSError:  # flush will raise it
                sent = 0
        if sent < len(data):
            self._waiting.append((memoryview(data)[sent:], fd))

    def flush(self) -> None:
        """Goes on sending, until all is sent or the socket is full.

        Raises OSError when nobody reads any more.
        """
        while self._waiting:
            data, fd = self._waiting[0]
            sent = self._send(data, fd)
            if sent == 0:
                return
            self._drop_descriptor()
            if sent < len(data):
                self._waiting[0] = (data[sent:], None)
            else:
                self._waiting.popleft()

    def clear(self) -> None:
        """Forgets what was not sent."""
        while self._waiting:
            self._drop_descriptor()
            self._waiting.popleft()

    def _send(self, data: bytes | memoryview, fd: int | None) -> int:
        try:
            if fd is None:
                return self._end.send(data, socket.MSG_DONTWAIT)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))
            return self._end.sendmsg([data], [rights], socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _drop_descriptor(self) -> None:
        data, fd = self._waiting[0]
        if fd is not None:
            os.close(fd)
            self._waiting[0] = (data, None)
