"""The ledger of a run against the rows that its tasks have traced, row by row."""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

SENT, RECEIVED, REFUSED = "sent", "received", "refused"


class MessageId(NamedTuple):
    """What a message is called at both ends; its rows are numbered from 0."""

    channel: str
    host: str  # of the queue, job/index
    producer: str  # job/index/incarnation
    sequence: int

    def __str__(self) -> str:
        return f"{self.producer} → {self.host}, number {self.sequence}"


class Receipt(NamedTuple):
    rows: int
    owner: str  # job/index/incarnation of who took it


@dataclasses.dataclass
class RowTraces:
    """All that the tasks of a run have noted."""

    owners: list[str] = dataclasses.field(default_factory=list)  # of the files
    sent: dict[MessageId, int] = dataclasses.field(default_factory=dict)  # rows
    received: dict[MessageId, Receipt] = dataclasses.field(default_factory=dict)
    refused: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    twice: list[str] = dataclasses.field(default_factory=list)  # sentences
    odd: list[str] = dataclasses.field(default_factory=list)

    def add(self, owner: str, line: str) -> None:
        """Takes in a line from the file of a task, `owner`: job/index/incarnation."""
        try:
            what, channel, host, producer, number, text = line.split()
            message = MessageId(channel, host, producer, int(number))
            rows = int(text)
        except ValueError:
            self.odd.append(f"{owner} has a line that nobody can read: {line!r}")
            return
        if what == RECEIVED:
            self._receive(message, Receipt(rows, owner))
        elif producer != owner or what not in (SENT, REFUSED):
            self.odd.append(f"{owner} has an odd line: {line!r}")
        elif what == REFUSED:
            self.refused[channel, producer] += rows
        elif message in self.sent:
            self.twice.append(f"{channel}: {message} was sent twice")
        else:
            self.sent[message] = rows

    def _receive(self, message: MessageId, receipt: Receipt) -> None:
        before = self.received.setdefault(message, receipt)
        if before is not receipt:
            owners = dict.fromkeys([before.owner, receipt.owner])
            text = f"{message} was received twice, by {' and by '.join(owners)}"
            self.twice.append(f"{message.channel}: {text}")


def read_traces(folder: pathlib.Path) -> RowTraces:
    """Of all files <job>-<index>-<incarnation>.txt in the folder."""
    traces = RowTraces()
    for path in sorted(folder.glob("*.txt")):
        owner = path.stem.replace("-", "/")
        traces.owners.append(owner)
        for line in path.read_text().splitlines():
            traces.add(owner, line)
    return traces


def check_rows(
    traces: RowTraces,
    channels: Mapping[str, Mapping[str, int]],
    died: Callable[[str], bool],
) -> list[str]:
    """What is wrong, in sentences.

    `channels` is the ledger: of each channel how many rows were sent, received and
    lost. `died(job/index/incarnation)` says who did not end in order: only they may
    have done what the ledger does not know of. What an owner took in that died may be
    missing from `received`, and what a producer did that died, and no living one took
    in, from `sent`.
    """
    if not traces.owners:
        return ["no task has traced its rows"]
    complaints = [*traces.odd, *traces.twice, *_strangers(traces)]
    for name, counts in channels.items():
        complaints += [f"{name}: {text}" for text in _check(name, counts, traces, died)]
    return complaints


def _strangers(traces: RowTraces) -> Iterator[str]:
    """Messages that were received and not sent, or not so."""
    for message, receipt in traces.received.items():
        rows = traces.sent.get(message)
        if rows is None:
            yield f"{message.channel}: {message} was received, but never sent"
        elif rows != receipt.rows:
            text = f"{message} was sent with {rows} rows, received with {receipt.rows}"
            yield f"{message.channel}: {text}"


def _check(
    name: str,
    counts: Mapping[str, int],
    traces: RowTraces,
    died: Callable[[str], bool],
) -> Iterator[str]:
    sent, received, lost = counts["sent"], counts["received"], counts["lost"]
    if sent != received + lost:
        yield f"{sent} rows sent are not {received} received and {lost} lost"
    if lost < 0:
        yield f"{lost} rows lost"
    ours = {m: r for m, r in traces.received.items() if _is_of(m.channel, name)}
    by_living = {m: r.rows for m, r in ours.items() if not died(r.owner)}
    least, most = sum(by_living.values()), sum(r.rows for r in ours.values())
    yield from _outside("received", received, least, most, "owners")
    certain, unknown = _sent_rows(name, traces, by_living, died)
    yield from _outside("sent", sent, certain, certain + unknown, "producers")


def _sent_rows(
    name: str,
    traces: RowTraces,
    by_living: Mapping[MessageId, int],
    died: Callable[[str], bool],
) -> tuple[int, int]:
    """Rows of which the ledger must know, and those of which it need not."""
    certain = unknown = 0
    for message, rows in traces.sent.items():
        if _is_of(message.channel, name):
            if died(message.producer) and message not in by_living:
                unknown += rows
            else:
                certain += rows
    for (channel, producer), rows in traces.refused.items():
        if _is_of(channel, name):
            if died(producer):
                unknown += rows
            else:
                certain += rows
    return certain, unknown


def _outside(what: str, count: int, least: int, most: int, who: str) -> Iterator[str]:
    if least <= count <= most:
        return
    traced = f"{least}" if least == most else f"from {least} to {most}"
    killed = f" ({most - least} of them of killed {who})" if most > least else ""
    yield f"the ledger has {count} rows {what}, traced are {traced}{killed}"


def _is_of(queue_name: str, channel: str) -> bool:
    """Queues of one channel differ behind a slash."""
    return queue_name.partition("/")[0] == channel
