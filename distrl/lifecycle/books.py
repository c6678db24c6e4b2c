"""What the tasks of a run have counted, and what receivers know of tasks that died."""

from __future__ import annotations

from collections import Counter
from typing import Any

from distrl.lifecycle.beat import Beat

_Place = tuple[str, int]  # name and incarnation


class Books:
    """The newest totals of every incarnation, and the newest gauges of every task.

    A task that dies has said less than it did: rows may have arrived that are not in
    its last beat, and others, which are, may never arrive. The receivers' own counts
    tell: the first are added to what it sent, the second to what was lost. What it sent
    behind its last beat and nobody got remains unknown.
    """

    def __init__(self) -> None:
        self._totals: dict[_Place, dict[str, float]] = {}
        self._gauges: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, dict[str, dict[str, int]]] = {}
        self._dead: set[_Place] = set()
        self.best: tuple[float, int | None] = 0.0, None  # return, version

    def take(self, beat: Beat) -> None:
        """Takes in a beat, which must be newer than the last one of its task."""
        self._totals[beat.name, beat.incarnation] = beat.totals
        self._gauges[beat.name] = beat.gauges
        self._seen[beat.name] = beat.seen
        found = beat.gauges.get("best_return"), beat.gauges.get("best_version")
        if found[0] is not None and (self.best[1] is None or found[0] >= self.best[0]):
            self.best = found[0], found[1]

    def close(self, name: str, incarnation: int) -> None:
        """This incarnation has died: it says no more, its receivers know more."""
        self._dead.add((name, incarnation))
        self._totals.setdefault((name, incarnation), {})

    def totals(self) -> dict[str, float]:
        """Sums over all tasks and all their incarnations."""
        sums: Counter[str] = Counter()
        for of_job in self.job_totals().values():
            sums.update(of_job)
        return dict(sums)

    def job_totals(self) -> dict[str, dict[str, float]]:
        """The same sums, job by job."""
        sums: dict[str, Counter[str]] = {}
        for place, totals in self._totals.items():
            of_job = sums.setdefault(place[0].split("/")[0], Counter())
            of_job.update(totals)
            if place in self._dead:
                of_job.update(self._corrections(place, totals))
        return {job: dict(counts) for job, counts in sums.items()}

    def _corrections(self, place: _Place, totals: dict[str, float]) -> dict[str, float]:
        """What has to be added to the totals of a task that died."""
        name = f"{place[0]}/{place[1]}"
        channels = {k.removeprefix("sent/") for k in totals if k.startswith("sent/")}
        channels |= {c for seen in self._seen.values() for c in seen if name in seen[c]}
        added = {}
        for channel in channels:
            arriving = totals.get(f"sent/{channel}", 0.0)
            arriving -= totals.get(f"lost/{channel}", 0.0)
            arrived = sum(
                seen.get(channel, {}).get(name, 0) for seen in self._seen.values()
            )
            if arrived != arriving:
                key = "sent" if arrived > arriving else "lost"
                added[f"{key}/{channel}"] = abs(arrived - arriving)
        return added

    def gauges(self) -> dict[str, dict[str, Any]]:
        """The newest gauges of every task."""
        return self._gauges

    def gauge(self, key: str) -> Any:
        """The newest value of a gauge that one task alone sets, or None."""
        values = [gauges[key] for gauges in self._gauges.values() if key in gauges]
        return values[0] if values else None
