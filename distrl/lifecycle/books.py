"""What the tasks of a run have counted, and what is known of tasks that died."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from distrl.lifecycle.beat import Beat

LIVES, LEFT, DIED = "lives", "left", "died"
# Not work that was done, but where it stands: of a task that was started again, only
# its newest incarnation knows.
_POSITIONS = ("learner_steps",)


@dataclasses.dataclass
class Account:
    """The last words of one incarnation."""

    name: str
    totals: dict[str, float]
    tried: dict[str, dict[str, tuple[int, int]]]  # as in a Beat
    seen: dict[str, dict[str, int]]
    fate: str = LIVES


class Books:
    """The newest totals of every incarnation, and the newest gauges of every task.

    A producer counts what it sends, an owner what it sees, and while both live or leave
    in order these counts stand side by side: what a producer gave up, not knowing
    whether it had arrived, is lost unless the owner has seen it. When one of them dies,
    its last words are older than its deeds, and the other one's count decides: rows
    that the owner has seen were sent; others that were, or may have been, put are lost.
    What a dead producer did behind its last beat, and nobody got, remains unknown.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}  # by "job/task/incarnation"
        self._newest: dict[str, str] = {}  # of these, by job/task
        self._gauges: dict[str, dict[str, Any]] = {}
        self._sums: dict[str, dict[str, float]] | None = None  # until something changes
        self.best: tuple[float, int | None] = 0.0, None  # return, version

    def take(self, beat: Beat) -> None:
        """Takes in a beat, which must be newer than the last one of its task."""
        key = f"{beat.name}/{beat.incarnation}"
        self._accounts[key] = Account(beat.name, beat.totals, beat.tried, beat.seen)
        self._newest[beat.name] = key
        self._gauges[beat.name] = beat.gauges
        self._sums = None
        found = beat.gauges.get("best_return"), beat.gauges.get("best_version")
        if found[0] is not None and (self.best[1] is None or found[0] >= self.best[0]):
            self.best = found[0], found[1]

    def close(self, name: str, incarnation: int, fate: str = DIED) -> None:
        """This incarnation says no more: it has LEFT in order, or DIED."""
        key = f"{name}/{incarnation}"
        account = self._accounts.setdefault(key, Account(name, {}, {}, {}))
        account.fate = fate
        self._sums = None

    def close_all(self) -> None:
        """Everybody who has not left in order has died."""
        for account in self._accounts.values():
            account.fate = LEFT if account.fate == LEFT else DIED
        self._sums, self._gauges = None, {}

    def totals(self) -> dict[str, float]:
        """Sums over all tasks and all their incarnations."""
        sums: Counter[str] = Counter()
        for of_job in self.job_totals().values():
            sums.update(of_job)
        return dict(sums)

    def job_totals(self) -> dict[str, dict[str, float]]:
        """The same sums, job by job."""
        if self._sums is None:
            self._sums = self._add_up()
        return self._sums

    def _add_up(self) -> dict[str, dict[str, float]]:
        sums: dict[str, defaultdict[str, float]] = {}
        seen = self._seen_by_producer()
        for key, account in [*self._accounts.items(), *self._unheard(seen)]:
            of_job = sums.setdefault(account.name.split("/")[0], defaultdict(float))
            newest = self._newest.get(account.name) == key
            for total, value in account.totals.items():
                if newest or total not in _POSITIONS:
                    of_job[total] += value
            corrections = self._of_producer(account, seen.get(key, {}))
            for total, rows in [*corrections, *_of_owner(account)]:
                if rows:
                    of_job[total] += rows
        return {job: dict(counts) for job, counts in sums.items()}

    def _unheard(self, seen: Iterable[str]) -> Iterator[tuple[str, Account]]:
        """Producers that only owners know of: they have not beaten yet, or died before
        they could."""
        for key in set(seen) - set(self._accounts):
            yield key, Account(key.rsplit("/", 1)[0], {}, {}, {}, DIED)

    def _seen_by_producer(self) -> dict[str, dict[str, dict[str, int]]]:
        """Producer → channel → owner → rows that were seen."""
        found: dict[str, dict[str, dict[str, int]]] = {}
        for owner, account in self._accounts.items():
            for channel, of_channel in account.seen.items():
                for producer, rows in of_channel.items():
                    by_owner = found.setdefault(producer, {}).setdefault(channel, {})
                    by_owner[owner] = rows
        return found

    def _of_producer(
        self, account: Account, seen: dict[str, dict[str, int]]
    ) -> Iterator[tuple[str, float]]:
        """What has to be added to what a producer has counted."""
        sent = {k[5:]: v for k, v in account.totals.items() if k.startswith("sent/")}
        for channel in set(sent) | set(account.tried) | set(seen):
            tried, by_owner = account.tried.get(channel, {}), seen.get(channel, {})
            put = 0
            for owner in set(tried) | set(by_owner):
                rows, unsure = tried.get(owner, (0, 0))
                arrived = by_owner.get(owner, 0)
                put += max(rows, arrived)
                if DIED in (account.fate, self._fate(owner)):
                    yield f"lost/{channel}", max(rows, arrived) - arrived
                elif LIVES not in (account.fate, self._fate(owner)):
                    yield f"lost/{channel}", min(unsure, max(0, rows - arrived))
            if account.fate == DIED:  # numbered and never put, or seen and not said
                refused = account.totals.get(f"lost/{channel}", 0.0)
                rest = sent.get(channel, 0.0) - refused - put
                yield f"{'sent' if rest < 0 else 'lost'}/{channel}", abs(rest)

    def _fate(self, key: str) -> str:
        account = self._accounts.get(key)
        return LIVES if account is None else account.fate

    def gauges(self) -> dict[str, dict[str, Any]]:
        """The newest gauges of every task."""
        return self._gauges

    def gauge(self, key: str) -> Any:
        """The newest value of a gauge that one task alone sets, or None."""
        values = [gauges[key] for gauges in self._gauges.values() if key in gauges]
        return values[0] if values else None

    def dump(self) -> dict[str, Any]:
        """All of it, JSON."""
        return {
            "accounts": {k: dataclasses.asdict(a) for k, a in self._accounts.items()},
            "newest": self._newest,
            "gauges": self._gauges,
            "best": self.best,
        }

    def recall(self, dump: dict[str, Any]) -> None:
        """Takes over what was dumped; who has beaten since is newer than that."""
        accounts = {k: Account(**a) for k, a in dump["accounts"].items()}
        self._accounts = accounts | self._accounts
        self._newest = dump["newest"] | self._newest
        self._gauges = dump["gauges"] | self._gauges
        reached, version = dump["best"]
        if self.best[1] is None or reached > self.best[0]:
            self.best = reached, version
        self._sums = None


def _of_owner(account: Account) -> Iterator[tuple[str, float]]:
    """What has to be added to what a dead owner has counted: its last words about each
    producer are a moment younger than its totals."""
    for channel, rows in account.seen.items() if account.fate == DIED else ():
        gaps = account.totals.get(f"lost/{channel}", 0.0)
        received = account.totals.get(f"received/{channel}", 0.0)
        yield f"received/{channel}", sum(rows.values()) - gaps - received
