"""A child process, the socket to it, and the promises that are in flight."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from absl import logging

from distrl.core import child_loop, remote_errors, wire
from distrl.core.inline_link import InlineLink
from distrl.core.promises import Promise, WaitStopped
from distrl.core.remote_errors import ChildDied, ChildFailed
from distrl.core.threads import Deadline

_LOOK_SECS = 0.2  # how often a wait looks at the stop event and at the process
_REAP_SECS = 1.0  # for a process that has closed its socket to end
_KILL_SECS = 5.0  # for the kernel to end a killed process
_START_HINT = (
    " before it was ready. Does the main module start processes when it is imported? "
    'Such lines belong under `if __name__ == "__main__":`'
)
_starting = threading.Lock()  # one start at a time: the environment is changed for it
_renew = _starting._at_fork_reinit  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_renew)  # forks happen while it is held


class Link:
    """The parent's end. It knows no `ChildProcess`, so a finaliser may hold it."""

    def __init__(self, name: str, call_secs: float, stop: threading.Event | None):
        self.name, self.state = name, "starting"
        self.pid: int | None = None
        self.exitcode: int | None = None
        self.ready = Promise("start", self)
        self._call_secs, self._stop = call_secs, stop
        self._pending: dict[int, Promise] = {0: self.ready}
        self._next_id = 1
        self._was_ready = self._ended = False
        self._process: Any = None
        self._end, self._childs_end = socket.socketpair()
        self._reader, self._outbox = wire.FrameReader(self._end), wire.Outbox(self._end)
        self._polled = select.poll()  # made once: the waits are the hot path
        self._polled.register(self._end.fileno(), select.POLLIN)

    def start(self, factory: bytes, method: str) -> None:
        """Starts the process; does not wait for it.

        The factory goes through the socket: multiprocessing's own pipe would block
        for ever on a large one whose reader has died.
        """
        try:
            copied = self._end if method == "fork" else None
            self._start_process(method, (self._childs_end, copied, self.name))
        except (EOFError, ConnectionError):  # it died before it had a pid
            self._lose()
            return
        except BaseException:
            self._lose()
            raise
        finally:
            self._childs_end.close()  # or the death of the child were no end of file
        self._polled.register(self._process.sentinel, select.POLLIN)
        self._put(wire.frame(wire.FACTORY, 0, factory))

    def _start_process(self, method: str, args: tuple[Any, ...]) -> None:
        context: Any = multiprocessing.get_context(method)
        process = context.Process(target=child_loop.run_child, args=args)
        process.name, process.daemon = self.name, False  # it may have children itself
        with _starting, _without_mpi_variables():
            process.start()
        self._process, self.pid = process, process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.is_alive()

    @property
    def awaited(self) -> list[tuple[int, int]]:
        """What poll tells of when the child says something, ends, or has room for what
        it was sent: descriptors and events; [] behind its end."""
        if self._ended:
            return []
        room = select.POLLOUT if self._outbox else 0
        said = (self._end.fileno(), select.POLLIN | room)
        return [said, (self._process.sentinel, select.POLLIN)]

    def request(self, kind: int, method: str, args: Any, kwargs: Any) -> Promise:
        """Sends a request and never waits; a fault in it is the promise's outcome."""
        promise = Promise(method, self)
        try:
            body = wire.dumps((method, args, kwargs))
        except TypeError as error:
            text = f"{self.name}: an argument of {method!r} {error}"
            promise.settle(error=TypeError(text))
            return promise
        if self._ended:
            promise.settle(error=self._death())
            return promise
        self._pending[self._next_id] = promise
        self._put(wire.frame(kind, self._next_id, body))
        self._next_id += 1
        return promise

    def request_with_descriptor(self, method: str, fd: int, args: Any) -> Promise:
        """The same, with a copy of a descriptor for the method."""
        own = os.dup(fd)
        promise = self.request(wire.DESCRIPTOR, method, args, {})
        if promise.settled:
            os.close(own)
        else:
            self._put(wire.DESCRIPTOR_BYTE, own)
        return promise

    def _put(self, data: bytes, fd: int | None = None) -> None:
        self._outbox.put(data, fd)
        if self._outbox:
            self._send_on()

    def _send_on(self) -> None:
        """Sends what the socket takes, and has it polled for room for the rest."""
        try:
            self._outbox.flush()
        except OSError:  # the child is gone: the next look sees the end of file
            self._outbox.clear()
        room = select.POLLOUT if self._outbox else 0
        self._polled.modify(self._end.fileno(), select.POLLIN | room)

    def wait(self, promise: Promise, timeout: float | None) -> None:
        """Returns once `promise` is settled; raises TimeoutError or WaitStopped."""
        seconds = self._call_secs if timeout is None else timeout
        deadline = Deadline(seconds)
        while True:
            remaining = deadline.remaining
            self.look(min(_LOOK_SECS, remaining))
            if promise.settled:
                return
            where = f"{self.name}: no reply to {promise.method!r}"
            if self._stop is not None and self._stop.is_set():
                raise WaitStopped(f"{where} before the stop")
            if remaining == 0.0:
                raise TimeoutError(f"{where} within {seconds:.1f} s")

    def look(self, seconds: float) -> None:
        """Takes in what the child says, or its end; waits at most `seconds` for it."""
        if self._ended:
            return
        events = dict(self._polled.poll(seconds * 1e3))
        if self._end.fileno() in events:  # first what it said, then its end
            self._exchange()
        elif events or not self.alive:  # its own children may hold socket and sentinel
            self._lose()

    def _exchange(self) -> None:
        if self._outbox:
            self._send_on()
        try:
            frames = self._reader.read()
        except EOFError:
            self._lose()
            return
        for kind, request, body in frames:
            self._take(kind, self._pending.pop(request, None), body)

    def _take(self, kind: int, promise: Promise | None, body: bytearray) -> None:
        if kind == wire.CLOSED:
            if body:
                error = remote_errors.decode(body, self.name)
                text = "%s: its close() raised %r%s"
                logging.warning(text, self.name, error, error.__cause__)
        elif promise is None:  # nobody waits for it any more
            return
        elif kind in (wire.RESULT, wire.READY):
            self._was_ready = True
            self._settle(promise, body)
        else:
            promise.settle(error=remote_errors.decode(body, self.name))
            if kind == wire.FATAL:
                self.join(Deadline(_REAP_SECS))
                self._lose()

    def _settle(self, promise: Promise, body: bytearray) -> None:
        try:
            promise.settle(pickle.loads(body))
        except Exception as error:
            text = f"{self.name}: cannot unpickle the result of {promise.method!r}"
            promise.settle(error=ChildFailed(f"{text}: {error!r}"))
        if promise is self.ready and self.state == "starting":
            self.state = "ready"

    def _lose(self) -> None:
        """The connection is over; whoever waits for a reply learns it."""
        if self._ended:
            return
        self._ended = True
        self._outbox.clear()
        if self._process is not None and self.state != "closing":
            self._process.join(_REAP_SECS)
            self.exitcode = self._process.exitcode
        self.state = "closing" if self.state == "closing" else "failed"
        for promise in self._pending.values():
            promise.settle(error=self._death())
        self._pending.clear()

    def _death(self) -> Exception:
        if self.state in ("closing", "closed"):
            return ChildFailed(f"{self.name} was closed before it replied")
        note = "" if self._was_ready else _START_HINT
        return ChildDied(self.name, self.pid, self.exitcode, note)

    # The end, step by step for `end_links`

    def ask(self) -> None:
        """Asks the object to close."""
        if not self._ended:
            self.state = "closing"
            self._put(wire.frame(wire.CLOSE, 0, b""))

    def join(self, deadline: Deadline) -> bool:
        """Waits for the process to end, taking in what it says; whether it has."""
        while self.alive and not deadline.passed:
            if self._ended:
                self._process.join(deadline.remaining)
            else:
                self.look(min(_LOOK_SECS, deadline.remaining))
        return not self.alive

    def terminate(self) -> None:
        """SIGTERM: interrupts a call, then the object is closed."""
        logging.warning("%s (pid %d) is slow to close: terminated", self.name, self.pid)
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        logging.warning("%s (pid %d) would not end: killed", self.name, self.pid)
        self._process.kill()

    def release(self) -> None:
        """Gives back all that the parent holds."""
        if self.state == "closed":
            return
        self._lose()
        self.state = "closed"
        self._end.close()
        if self._process is not None and not self._process.is_alive():
            self.exitcode = self._process.exitcode
            self._process.close()
        self._process = None


def end_links(links: Sequence[Link | InlineLink], close_secs: float) -> None:
    """Ends children together: ask, then terminate, then kill; raises nothing.

    Takes at most twice `close_secs`, and 5 s for the kernel to end what was killed.
    """
    for link in links:
        link.ask()
    deadline = Deadline(close_secs)
    slow = [link for link in links if not link.join(deadline)]
    for link in slow:
        link.terminate()
    deadline = Deadline(close_secs)
    stuck = [link for link in slow if not link.join(deadline)]
    for link in stuck:
        link.kill()
    deadline = Deadline(_KILL_SECS)
    for link in stuck:
        link.join(deadline)
    for link in links:
        link.release()


@contextmanager
def _without_mpi_variables() -> Iterator[None]:
    """MPI libraries in a child would take themselves for a rank of the parent's job."""
    removed = {
        key: os.environ.pop(key)
        for key in list(os.environ)
        if key.startswith(child_loop.MPI_PREFIXES)
    }
    try:
        yield
    finally:
        os.environ.update(removed)
