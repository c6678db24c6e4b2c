"""What a task says about itself, again and again."""

from __future__ import annotations

import dataclasses
from typing import Any

JOINED, DONE, FAILED = "joined", "done", "failed"


@dataclasses.dataclass
class Beat:
    """A task's own row. Totals are absolute: a repeated or lost beat does no harm."""

    job: str
    task: int
    incarnation: int
    number: int  # 1, 2, … of this incarnation
    state: str = JOINED  # JOINED, DONE or FAILED
    message: str = ""  # of a failure
    progress: int = 0  # of the main loop
    totals: dict[str, float] = dataclasses.field(default_factory=dict)
    gauges: dict[str, Any] = dataclasses.field(default_factory=dict)
    # channel → producer, as "job/task/incarnation" → rows up to its last message
    seen: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    stop_request: str = ""
    run_id: str = ""  # from learner 0
    config: dict[str, str] | None = None  # with the first beats, until it is accepted

    @property
    def name(self) -> str:
        return f"{self.job}/{self.task}"
