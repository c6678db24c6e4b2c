"""The thread between a channel's owner end and the job that reads it."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Callable

from distrl.cluster.channel import ChannelOwner
from distrl.cluster.messages import END, Header, Message, Producer
from distrl.cluster.row_trace import RECEIVED, RowTrace
from distrl.core.counters import Counters
from distrl.core.errors import ChannelClosed
from distrl.core.threads import StoppableThread

_POLL_SECS = 0.2  # how often a blocked hand-over looks whether it should stop


@dataclasses.dataclass
class ProducerRecord:
    """What a receiver has seen from one producer."""

    sequence: int = 0
    total_rows: int = 0  # as the producer counts them
    seen_rows: int = 0  # of those, since it was first heard here
    ended: bool = False


class ProxyReceiver:
    """Moves messages from the owner's queue into a local one, each exactly once.

    Repeated sequence numbers are dropped and their rows counted as
    `duplicates/<channel>`; gaps, seen in the producers' running totals, as
    `lost/<channel>`; all others as `received/<channel>`. `notify` is called, in the
    receiver's thread, whenever something has arrived, and when the thread has ended.
    """

    def __init__(
        self,
        owner: ChannelOwner,
        counters: Counters,
        capacity: int,
        notify: Callable[[], None] = lambda: None,
        trace: RowTrace | None = None,
    ):
        self.owner, self._trace = owner, trace
        self._counters = counters
        self._notify = notify
        self._local: queue.Queue[Message] = queue.Queue(capacity)
        self._lock = threading.Lock()
        self._producers: dict[Producer, ProducerRecord] = {}
        name = f"receive {owner.spec.name}"
        self._thread = StoppableThread(name, self._receive, notify).start()

    def _receive(self, stopping: threading.Event) -> None:
        try:
            while not stopping.is_set():
                message = self.owner.spec.unpack(self.owner.get())
                if self._accept(message.header) and message.header.kind != END:
                    self._hand_over(message, stopping)
                self._notify()
        except ChannelClosed:
            return

    def _accept(self, header: Header) -> bool:
        """Keeps the books; whether the message is new."""
        name = self.owner.spec.name
        with self._lock:
            record = self._producers.get(header.producer)
            if record is None:  # what it sent to an earlier owner is in its books
                before = 0 if header.sequence == 1 else header.total_rows - header.rows
                record = ProducerRecord(total_rows=before)
                self._producers[header.producer] = record
            if header.sequence <= record.sequence:
                self._counters.add(f"duplicates/{name}", header.rows)
                return False
            missing = header.total_rows - header.rows - record.total_rows
            self._counters.add(f"lost/{name}", missing)
            self._counters.add(f"received/{name}", header.rows)
            record.sequence = header.sequence
            record.seen_rows += missing + header.rows
            record.total_rows = header.total_rows
            record.ended = header.kind == END
        self._note(header)
        return True

    def _note(self, header: Header) -> None:
        if self._trace is not None and header.rows:
            address = self.owner.address
            self._trace.note(
                RECEIVED,
                self.owner.spec.queue_name,
                f"{address.job}/{address.index}",
                header.producer,
                header.sequence,
                header.rows,
            )

    def _hand_over(self, message: Message, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                return self._local.put(message, timeout=_POLL_SECS)
            except queue.Full:
                continue

    def get(self, timeout: float = 0.0) -> Message | None:
        """The next message, or None when nothing comes within `timeout` s.

        Raises ChannelClosed once the channel is closed and all has been read, and
        whatever ended the thread.
        """
        end = time.monotonic() + timeout
        while True:
            finished = not self._thread.alive  # before the look, not after
            try:
                wait = min(_POLL_SECS, end - time.monotonic())
                return self._local.get(block=wait > 0, timeout=max(wait, 0.0))
            except queue.Empty:
                self._thread.check()
                if finished:
                    name = self.owner.spec.name
                    raise ChannelClosed(f"channel {name} has ended") from None
                if time.monotonic() >= end:
                    return None

    @property
    def name(self) -> str:
        """The channel's."""
        return self.owner.spec.name

    @property
    def size(self) -> int:
        """Messages that wait, in the queue and locally."""
        return self.owner.size + self._local.qsize()

    @property
    def capacity(self) -> int:
        """Messages that can wait."""
        return self.owner.spec.capacity + self._local.maxsize

    def has_ended(self, producer: Producer) -> bool:
        """Whether this producer's END has been read from the queue."""
        with self._lock:
            record = self._producers.get(producer)
            return record is not None and record.ended

    def rows_seen(self) -> dict[str, int]:
        """The rows of each producer ("job/task/incarnation") up to its last message,
        gaps included."""
        with self._lock:
            records = self._producers.items()
            return {f"{p}/{p.incarnation}": record.seen_rows for p, record in records}

    def close(self) -> None:
        """Closes the queue; what is in it can still be read with `get`."""
        self.owner.close()

    def stop(self, timeout: float = 5.0) -> None:
        """Closes the queue, drops what has not been read, and ends the thread."""
        self._thread.stop()
        self.owner.close()
        self._thread.join(timeout)
