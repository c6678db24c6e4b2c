"""What ps 0 knows of one task."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class Member:
    """One incarnation of a task, as it was last heard."""

    incarnation: int
    number: int
    state: str
    message: str
    progress: int
    heard: float  # when, on the caller's clock
    moved: float  # when progress last changed
    stalled: bool = False

    def dump(self) -> dict[str, Any]:
        """What is not a time, by name."""
        return {name: getattr(self, name) for name in _LASTING}


_LASTING = ("incarnation", "number", "state", "message", "progress")
