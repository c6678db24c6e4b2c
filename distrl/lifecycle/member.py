"""What ps 0 knows of one task."""

from __future__ import annotations

import dataclasses


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
