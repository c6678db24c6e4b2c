"""The errors that cross a border: between threads, processes and tasks."""

from __future__ import annotations


class DistrlError(Exception):
    """A fault that is reported to the user in one line, without a traceback."""


class ConfigError(DistrlError, ValueError):
    """A flag, gin key, cluster spec, space or checkpoint that cannot be used."""


class ChannelClosed(DistrlError):
    """The channel has ended: it is closed and everything in it has been read."""


class PeerUnreachable(DistrlError):
    """Nobody answers at an address, or not within the limit."""


class TaskRefused(DistrlError):
    """ps 0 did not let this task join: it differs from the run, or came too late."""


class RunEnding(TaskRefused):
    """The run is ending, or has ended: there is nothing to join."""


class RunFailed(DistrlError):
    """The run ended because of a failure in some task."""


class Diverged(DistrlError):
    """Learning has led to numbers that are not finite; it would again."""
