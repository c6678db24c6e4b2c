"""Which messages a task has put and taken, line by line, for those who check it."""

from __future__ import annotations

import os
import pathlib

from distrl.cluster.messages import Producer

SENT, RECEIVED, REFUSED = "sent", "received", "refused"


class RowTrace:
    """A file that outlives its process, however that ends.

    Each line is `what channel host job/task/incarnation sequence rows`, where `host` is
    the job/task on whose server the queue is. SENT is noted ahead of the first attempt
    to put a message, REFUSED (sequence 0) for rows that were given up without one.
    Written at once and without a buffer, for threads. Raises OSError.
    """

    def __init__(self, path: pathlib.Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(path, flags, 0o644)

    def note(
        self,
        what: str,
        channel: str,
        host: str,
        producer: Producer,
        sequence: int,
        rows: int,
    ) -> None:
        """Appends a line."""
        who = f"{producer}/{producer.incarnation}"
        line = f"{what} {channel} {host} {who} {sequence} {rows}\n"
        os.write(self._file, line.encode())
