"""What ps 0 says of the run, read from its metrics while it writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class StatusFeed:
    """The newest line of a JSON lines file that grows; what it holds already is that of
    an earlier run."""

    def __init__(self, path: Path):
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def newest(self) -> dict[str, Any] | None:
        """The last whole line, or None when none was added since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                lines, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return None
        self._offset += len(lines) + len(newline)
        return json.loads(lines.rpartition(b"\n")[2]) if lines else None
