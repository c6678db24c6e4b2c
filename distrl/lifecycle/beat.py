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
    # channel → the other side ("job/task/incarnation") → rows: as a producer, those
    # that were put, or may have been, and how many of them are not known to have
    # arrived; as an owner, those up to each producer's last message, gaps included
    tried: dict[str, dict[str, tuple[int, int]]] = dataclasses.field(
        default_factory=dict
    )
    seen: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    stop_request: str = ""
    fatal: bool = False  # a failure that would only come again
    run_id: str = ""  # from learner 0, like all that follows
    checkpoint: int = 0  # the newest that it has asked the memories to join
    restored: int = 0  # the one that a resumed run goes on from, 0: none
    recall: dict[str, Any] | None = None  # to a blank ps 0: `RunState.dump`
    kept: str = ""  # the phase in the newest dump of ps 0 that it has
    resumes: bool = False  # of `recall`: nobody in it lives any more
    config: dict[str, str] | None = None  # with the first beats, until it is accepted

    @property
    def name(self) -> str:
        return f"{self.job}/{self.task}"
