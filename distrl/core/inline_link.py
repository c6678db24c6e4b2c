"""What stands in for a child process and the link to it, where none is started."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from distrl.core import child_loop, remote_errors, wire
from distrl.core.promises import Promise
from distrl.core.remote_errors import ChildFailed
from distrl.core.threads import Deadline


class InlineLink:
    """The parent's end of a child that lives in the parent.

    A request is done before the call returns: nobody waits, so no limit is kept, and
    nothing is pickled. Errors come out of promises as they would from a process; an
    object that leaves it (SystemExit) has failed, and is closed.
    """

    pid: int | None = None
    exitcode: int | None = None
    alive = False  # there is no process
    awaited: Sequence[tuple[int, int]] = ()

    def __init__(self, name: str):
        self.name, self.state = name, "starting"
        self.ready = Promise("start", self)
        self._object: Any = None

    def start(self, factory: Callable[[], Any], method: str) -> None:
        """Makes the object; `ready` says how that went."""
        try:
            self._object = factory()
            described = child_loop.describe(self._object)
        except (Exception, SystemExit) as error:
            self._settle(self.ready, error, f"in {self.name}, while it was made")
            self._fail()
            return
        self.ready.settle(described)
        self.state = "ready"

    def request(
        self, kind: int, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Promise:
        """Does what is asked; a fault in it is the promise's outcome."""
        promise = Promise(method, self)
        if self.state != "ready":
            promise.settle(error=ChildFailed(f"{self.name} has failed before"))
            return promise
        try:
            result = child_loop.perform(self._object, kind, method, args, kwargs)
        except (Exception, SystemExit) as error:
            self._settle(promise, error, f"in {method!r} of {self.name}")
            if isinstance(error, SystemExit):
                self._fail()
        else:
            promise.settle(result)
        return promise

    def request_with_descriptor(
        self, method: str, fd: int, args: Sequence[Any]
    ) -> Promise:
        """The same, with a copy of a descriptor for the method."""
        if self.state == "ready":
            args = (os.dup(fd), *args)
        return self.request(wire.DESCRIPTOR, method, args, {})

    def _settle(self, promise: Promise, error: BaseException, where: str) -> None:
        encoded = remote_errors.encode(error, where)
        promise.settle(error=remote_errors.decode(encoded, self.name))

    def _fail(self) -> None:
        self.state = "failed"
        self._close_object()

    def wait(self, promise: Promise, timeout: float | None) -> None:
        """Every promise is settled when it is handed out."""

    def look(self, seconds: float) -> None:
        """There is nothing to take in."""

    # The end, step by step for `end_links`

    def ask(self) -> None:
        """Closes the object, unless that was done."""
        if self.state != "closed":
            self.state = "closing"
            self._close_object()

    def _close_object(self) -> None:
        """What its own close() raises is logged."""
        target, self._object = self._object, None
        try:
            child_loop.close(target)
        except (Exception, SystemExit) as error:
            logging.warning("%s: its close() raised %r", self.name, error)

    def join(self, deadline: Deadline) -> bool:
        return True

    def terminate(self) -> None:
        raise NotImplementedError("there is no process")

    kill = terminate

    def release(self) -> None:
        """Nothing is held any more."""
        self.state = "closed"
