"""What ps 0 says of the run, read from its metrics while it writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class StatusFeed:
    """The newest line of a JSON lines file that grows; what it holds already is that of
    an earlier run. A file that cannot be read, or not now, says nothing new."""

    def __init__(self, path: Path):
        self._path = path
        try:
            self._offset = path.stat().st_size
        except OSError:
            self._offset = 0

    def newest(self) -> dict[str, Any] | None:
        """The last whole line, or None when none was added since the last call, or it
        is none of ours, as from a disk that was full."""
        try:
            text = self._read()
        except OSError:
            return None
        lines, newline, _ = text.rpartition(b"\n")
        self._offset += len(lines) + len(newline)
        try:
            status = json.loads(lines.rpartition(b"\n")[2]) if lines else None
        except ValueError:
            return None
        return status if isinstance(status, dict) else None

    def _read(self) -> bytes:
        """What has been added; all where somebody has cut the file. Raises OSError."""
        with self._path.open("rb") as file:
            if self._path.stat().st_size < self._offset:
                self._offset = 0
            file.seek(self._offset)
            return file.read()
