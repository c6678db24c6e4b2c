"""Errors that cross a process border with their own type and traceback."""

from __future__ import annotations

import pickle
import signal
import traceback

from distrl.core import wire


class RemoteTraceback(Exception):
    """The traceback of an error where it happened, as text; the cause of the error."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0]).rstrip()


class ChildFailed(RuntimeError):
    """An error of the object that cannot be raised with its own type here."""


class ChildDied(RuntimeError):
    """The child process is gone. `name`, `pid`, `exitcode` (negative: a signal)."""

    def __init__(self, name: str, pid: int | None, exitcode: int | None, note: str):
        super().__init__(f"{name} (pid {pid}) {how_it_ended(exitcode)}{note}")
        self.name, self.pid, self.exitcode, self.note = name, pid, exitcode, note

    def __reduce__(self) -> tuple[object, ...]:
        return ChildDied, (self.name, self.pid, self.exitcode, self.note)


def how_it_ended(exitcode: int | None) -> str:
    """An exit code in words."""
    if exitcode is None:
        return "has closed its connection"
    if exitcode >= 0:
        return f"has ended with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"was ended by {name} (exit code {exitcode})"


def encode(error: BaseException, where: str) -> bytes:
    """`error` as bytes for `decode`; `where` says what was being done.

    The error travels itself only if pickling it there and back works: a type that
    requires constructor arguments often pickles and then does not unpickle.
    """
    text = "".join(traceback.format_exception(error))
    try:
        body = wire.dumps(error)
        travels = type(pickle.loads(body)) is type(error)
    except Exception:
        travels = False
    if not travels or not isinstance(error, Exception):
        body = b""
    summary = f"{type(error).__name__}: {_message(error)}"
    return pickle.dumps((body, summary, f"{where}:\n{text}"))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"<its message cannot be made: {broken!r}>"


def decode(encoded: bytes | bytearray, name: str) -> Exception:
    """The error to raise: the original one, or ChildFailed with type and message.

    SystemExit and its like become ChildFailed: they were meant for the child.
    """
    body, summary, text = pickle.loads(encoded)
    error: Exception = ChildFailed(f"{name}: {summary}")
    if body:
        try:
            error = pickle.loads(body)
        except Exception:
            text += "\n(the error could not be unpickled in the parent)"
    error.__cause__ = RemoteTraceback(text)
    return error
