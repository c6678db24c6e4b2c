"""The child's side of `ChildProcess`: owns the object and answers requests.

It blocks while there is nothing to do. SIGINT is ignored (the parent decides); SIGTERM
interrupts a call, so that the object can still be closed. A thread watches the parent
and ends the process soon after it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, NoReturn

from distrl.core import remote_errors, wire

MPI_PREFIXES = ("OMPI_", "PMI_")
_ORPHAN_SECS = 1.0  # for each of two attempts to close the object of a dead parent


class Terminated(BaseException):
    """SIGTERM has come, or the parent is gone; raised in the main thread."""


def run_child(end: socket.socket, parents_end: socket.socket | None, name: str) -> None:
    """The life of the process. `parents_end` is what fork has copied, to be closed."""
    if parents_end is not None:
        parents_end.close()
        atexit._clear()  # what fork has copied is the parent's to do
    for variable in [key for key in os.environ if key.startswith(MPI_PREFIXES)]:
        del os.environ[variable]  # a fork server may be older than the cleaning
    host = Host(end, name)
    host.handle_signals()
    threading.Thread(target=_watch_parent, args=(host,), daemon=True).start()
    code = host.live()
    atexit._run_exitfuncs()  # multiprocessing does not, but for "spawn"
    sys.exit(code)


class Host:
    """The object and the loop that serves it."""

    def __init__(self, end: socket.socket, name: str):
        self._end, self._name = end, name
        self._object: Any = None
        self._leaving = False
        self._close_lock = threading.Lock()

    def handle_signals(self) -> None:
        """Replaces what was inherited: a handler of the parent's must not run here."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if self._leaving:  # it has had its time
            os._exit(128 + number)
        self._leaving = True
        raise Terminated

    def live(self) -> int:
        """Makes the object, serves it, closes it; the exit code."""
        code = 128 + signal.SIGTERM
        try:
            code = 0 if self._make() and self._serve() else 1
        except Terminated:
            pass
        finally:
            self._leaving = True
            self._send(wire.CLOSED, 0, self.close_object())
        return code

    def _make(self) -> bool:
        _, _, body = self._receive()
        try:
            self._object = pickle.loads(body)()
            ready = wire.dumps(describe(self._object))
        except Terminated:
            raise
        except BaseException as error:
            where = f"in {self._name}, while it was made"
            self._send(wire.FATAL, 0, remote_errors.encode(error, where))
            return False
        return self._send(wire.READY, 0, ready)

    def _serve(self) -> bool:
        """Answers until asked to close (True) or until nothing more is possible."""
        while True:
            kind, request, body = self._receive()
            if kind == wire.CLOSE:
                return True
            if not self._answer(kind, request, body):
                return False

    def _answer(self, kind: int, request: int, body: bytes) -> bool:
        answer, method = wire.RESULT, "?"
        try:
            descriptor = self._receive_descriptor() if kind == wire.DESCRIPTOR else ()
            method, args, kwargs = pickle.loads(body)
            result = perform(self._object, kind, method, (*descriptor, *args), kwargs)
            reply = self._pack(method, result)
        except Terminated:
            raise
        except BaseException as error:
            answer = wire.ERROR if isinstance(error, Exception) else wire.FATAL
            reply = remote_errors.encode(error, f"in {method!r} of {self._name}")
        return self._send(answer, request, reply) and answer != wire.FATAL

    def _pack(self, method: str, result: Any) -> bytes:
        try:
            return wire.dumps(result)
        except TypeError as error:
            raise TypeError(f"the result of {method!r} {error}") from error

    def close_object(self) -> bytes:
        """Calls the object's own close(), once; the error that it raised, or b""."""
        if not self._close_lock.acquire(blocking=False):
            return b""
        try:
            close(self._object)
        except BaseException as error:
            return remote_errors.encode(error, f"in 'close' of {self._name}")
        return b""

    def _send(self, kind: int, request: int, body: bytes) -> bool:
        try:
            self._end.sendall(wire.frame(kind, request, body))
        except OSError:  # the parent is gone
            return False
        return True

    def _receive(self) -> tuple[int, int, bytes]:
        length, request, kind = wire.HEADER.unpack(self._read(wire.HEADER.size))
        return kind, request, self._read(length)

    def _receive_descriptor(self) -> tuple[int, ...]:
        _, descriptors, _, _ = socket.recv_fds(self._end, 1, 1)
        return tuple(descriptors)

    def _read(self, size: int) -> bytes:
        """Exactly `size` bytes: more would swallow a descriptor that follows."""
        try:
            data = self._end.recv(size, socket.MSG_WAITALL)
            while data and len(data) < size:
                data += self._end.recv(size - len(data), socket.MSG_WAITALL)
        except ConnectionError:
            data = b""
        if len(data) < size:
            raise Terminated
        return data


# What a child does with its object, wherever that lives.


def describe(target: Any) -> Any:
    """What the object says of itself, if it does."""
    own = getattr(target, "describe", None)
    return None if own is None else own()


def close(target: Any) -> None:
    """Calls the object's own close(), if it has one."""
    own = getattr(target, "close", None)
    if own is not None:
        own()


def perform(target: Any, kind: int, name: str, args: Any, kwargs: Any) -> Any:
    """What a request asks of the object."""
    if kind == wire.GET:
        return getattr(target, name)
    if kind == wire.SET:
        return setattr(target, name, *args)
    return getattr(target, name)(*args, **kwargs)


def _watch_parent(host: Host) -> NoReturn:
    """Waits for the parent's end, gives the object 2 s to close, ends the process.

    First the main thread is interrupted, where closing is orderly. When it sits in
    native code, the object is closed from a thread beside it.
    """
    _wait_for_parent()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    threading.main_thread().join(_ORPHAN_SECS)
    beside = threading.Thread(target=host.close_object, daemon=True)
    beside.start()
    threading.main_thread().join(_ORPHAN_SECS)  # it may be what is closing
    os._exit(1)


def _wait_for_parent() -> None:
    """Returns when the parent has ended.

    The sentinel alone is late under fork, where every younger sibling holds a copy of
    the pipe behind it; a pidfd is not.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return
    watched = [parent.sentinel]
    if hasattr(os, "pidfd_open"):
        try:
            watched.append(os.pidfd_open(parent.pid))
        except ProcessLookupError:
            return
        except OSError:  # not offered by this kernel
            pass
    wait(watched)
