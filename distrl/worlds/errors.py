"""What goes wrong with worlds."""

from __future__ import annotations

from distrl.core.errors import DistrlError


class ClosedError(DistrlError):
    """The world was shut down."""


class WorkerError(DistrlError):
    """A worker process of a HogwildWorld has failed; its traceback is in the text."""
