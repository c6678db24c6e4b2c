"""A Python object in a process of its own: the contract of all children of distrl.

with ChildProcess(make_environment, "environment 3") as child:
    child.start()
    child.wait_ready()
    promise = child.call("step", action)
    ...
    result = promise.result()
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import select
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import cloudpickle

from distrl.core import wire
from distrl.core.child_link import Link, end_links
from distrl.core.inline_link import InlineLink
from distrl.core.promises import Outcome, Promise, WaitStopped, collect
from distrl.core.remote_errors import ChildDied, ChildFailed, RemoteTraceback

__all__ = [
    "FORKSERVER_PRELOAD",
    "INLINE",
    "START_METHODS",
    "ChildDied",
    "ChildFailed",
    "ChildLimits",
    "ChildProcess",
    "Outcome",
    "Promise",
    "RemoteTraceback",
    "WaitStopped",
    "close_all",
    "collect",
    "wait_for_news",
]

START_METHODS = ("forkserver", "spawn", "fork")
INLINE = "inline"  # in place of a start method: there is no process

# What the fork server imports once, so that a child finds it ready. It costs the first
# start about a second and the server's memory (tens of MB, shared with the children as
# long as nobody writes to it). A module that is not there is passed over in silence.
FORKSERVER_PRELOAD = ("distrl.core.child_loop", "numpy", "gymnasium")

_EXIT_SECS = 1.0  # for each step of closing what a program forgot to close
_EXIT_PRIORITY = 10  # before multiprocessing joins its children, without a limit


@dataclass(frozen=True)
class ChildLimits:
    """How long to wait, in s: for READY, for a reply, for each step of closing."""

    startup_secs: float = 60.0
    call_secs: float = 60.0
    close_secs: float = 5.0


class ChildProcess:
    """An object that lives in a process of its own; calls to it are promises.

    `factory` makes the object in the child; it is shipped by cloudpickle, so lambdas
    and closures will do. If the object has `describe()`, its value is what
    `wait_ready()` returns; if it has `close()`, that is called at the end, whatever
    the end is. An exception in a method is raised by the promise and changes nothing
    else. Setting `stop` ends every wait within 0.2 s.

    Under the start method "inline" the object lives in this process, and calls are done
    at once: to debug it, or where there are enough processes. Then nothing is pickled
    and nothing is limited, and what kills the object kills this process.

    Use it from one thread at a time. With "forkserver" the children get the environment
    variables that were set at the first such start in this program.

    Raises TypeError if `factory` is not callable or cannot be pickled, ValueError for
    an unknown start method, or for "fork" once TensorFlow is loaded.
    """

    _link: Link | InlineLink | None = None
    _closed = False
    _factory: Any = None  # pickled, unless it is for an InlineLink
    _finalizer: Any = None

    def __init__(
        self,
        factory: Callable[[], Any],
        name: str,
        start_method: str = "forkserver",
        limits: ChildLimits = ChildLimits(),
        stop: threading.Event | None = None,
        preload: Sequence[str] = FORKSERVER_PRELOAD,
    ):
        _check_start_method(start_method)
        self.name, self._start_method, self._limits = name, start_method, limits
        self._stop, self._preload = stop, preload
        self._factory = _portable_factory(factory, name, start_method)

    @property
    def state(self) -> str:
        """new, starting, ready, closing, closed or failed."""
        if self._closed:
            return "closed"
        return "new" if self._link is None else self._link.state

    @property
    def pid(self) -> int | None:
        """The process's id; None before the start."""
        return None if self._link is None else self._link.pid

    @property
    def exitcode(self) -> int | None:
        """How the process has ended (negative: by a signal); None if it has not."""
        return None if self._link is None else self._link.exitcode

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._link is not None and self._link.alive

    def start(self) -> None:
        """Starts the process; does not wait for it. Once only (RuntimeError)."""
        if self.state != "new":
            raise RuntimeError(f"{self.name}: start() in state {self.state!r}")
        if self._start_method == "forkserver":
            multiprocessing.set_forkserver_preload(list(self._preload))
        self._link = link = self._new_link()
        exit_secs = min(self._limits.close_secs, _EXIT_SECS)
        self._finalizer = multiprocessing.util.Finalize(
            self, end_links, ([link], exit_secs), exitpriority=_EXIT_PRIORITY
        )
        link.start(self._factory, self._start_method)
        self._factory = None

    def _new_link(self) -> Link | InlineLink:
        if self._start_method == INLINE:
            return InlineLink(self.name)
        return Link(self.name, self._limits.call_secs, self._stop)

    def wait_ready(self, timeout: float | None = None) -> Any:
        """What the object's `describe()` returned, None without one.

        Waits `timeout` s, by default `startup_secs`. Raises the constructor's error
        with its own type (ChildFailed if it cannot be pickled), ChildDied, TimeoutError
        (it may be called again), RuntimeError before the start.
        """
        seconds = self._limits.startup_secs if timeout is None else timeout
        return self._running("wait_ready").ready.result(seconds)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Promise:
        """The promise of `object.method(*args, **kwargs)`; never waits.

        Faults in the arguments and the death of the child come out of the promise;
        RuntimeError for a child that was not started, or is closed.
        """
        return self._running(method).request(wire.CALL, method, args, kwargs)

    def get(self, attribute: str) -> Promise:
        """The promise of `object.attribute`."""
        return self._running(attribute).request(wire.GET, attribute, (), {})

    def set(self, attribute: str, value: Any) -> Promise:
        """The promise, of None, that `object.attribute = value` was done."""
        return self._running(attribute).request(wire.SET, attribute, (value,), {})

    def send_descriptor(self, method: str, fd: int, *args: Any) -> Promise:
        """The promise of `object.method(own_fd, *args)`.

        `own_fd` is a descriptor of the child's, for the method to close; `fd` may be
        closed as soon as this returns.
        """
        return self._running(method).request_with_descriptor(method, fd, args)

    def _running(self, what: str) -> Link | InlineLink:
        if self._link is None or self.state in ("closing", "closed"):
            raise RuntimeError(f"{self.name}: {what!r} in state {self.state!r}")
        return self._link

    def close(self) -> None:
        """Ends the process, in any state; see `close_all`."""
        close_all([self])

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a ChildProcess cannot be copied or pickled: it owns a process")


def wait_for_news(children: Iterable[ChildProcess], seconds: float) -> bool:
    """Waits until one of some children says something, or ends; False after so many
    seconds. What it is, their promises tell: those that are not `done` before.

    At once for a child that has ended, or was not started.
    """
    polled = select.poll()
    for child in children:
        awaited = child._link.awaited if child._link is not None else []
        if not awaited:
            return True
        for descriptor, events in awaited:
            polled.register(descriptor, events)
    return bool(polled.poll(seconds * 1e3))


def close_all(children: Iterable[ChildProcess]) -> None:
    """Closes children side by side; also twice, unstarted, half made or dead ones.

    Each object's `close()` is tried, what it raises is logged. Then they are joined for
    `close_secs` (the longest of theirs), terminated, joined again, killed.
    """
    children = [child for child in children if not child._closed]
    links = [child._link for child in children if child._link is not None]
    end_links(
        links, max([c._limits.close_secs for c in children if c._link], default=0)
    )
    for child in children:
        child._closed, child._factory = True, None
        if child._finalizer is not None:
            child._finalizer.cancel()


def _check_start_method(start_method: str) -> None:
    allowed = (*START_METHODS, INLINE)
    if start_method not in allowed:
        raise ValueError(f"start_method must be one of {allowed}, got {start_method!r}")
    if start_method == "fork" and "tensorflow" in sys.modules:
        raise ValueError(
            "start_method 'fork' hangs children once TensorFlow is loaded: "
            "use 'spawn' or 'forkserver'"
        )


def _portable_factory(factory: Callable[[], Any], name: str, start_method: str) -> Any:
    """What a link is given of it."""
    if not callable(factory):
        raise TypeError(f"{name}: expected a factory, got a non-callable {factory!r}")
    if start_method == INLINE:
        return factory
    try:
        return cloudpickle.dumps(factory)
    except Exception as error:
        raise TypeError(f"{name}: the factory cannot be pickled: {error}") from error
