"""The thread between a job that produces and a channel on another host."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from distrl.cluster.channel import Address, ChannelClient
from distrl.cluster.messages import DATA, END, ChannelSpec, Producer
from distrl.cluster.row_trace import REFUSED, SENT, RowTrace
from distrl.cluster.sender_items import Item, SenderSettings, Tags, take_message
from distrl.core import specs
from distrl.core.counters import Counters
from distrl.core.errors import ChannelClosed, PeerUnreachable
from distrl.core.nests import concatenate, flatten_as
from distrl.core.specs import Nest
from distrl.core.threads import StoppableThread

_DEFAULT = SenderSettings()
_CLOSE_SECS = 3.0  # within which a sender without attempts of its own has ended


class ProxySender:
    """Joins small items to messages, numbers them and delivers them in order.

    A message that cannot be known to have arrived is repeated under its number, to
    the same incarnation of the owner. Rows are counted as `sent/<channel>` when they
    are first put or given up, and as `lost/<channel>` when they are given up before an
    attempt to put them; `rows_tried` tells of all others.
    """

    def __init__(
        self,
        spec: ChannelSpec,
        address: Address,
        run_id: str | None,
        producer: Producer,
        counters: Counters,
        settings: SenderSettings = _DEFAULT,
        notify: Callable[[], None] = lambda: None,
        trace: RowTrace | None = None,
    ):
        self.spec, self.address, self.settings = spec, address, settings
        self._trace = trace
        self._tried: dict[str, tuple[int, int]] = {}
        self._tried_lock = threading.Lock()
        self._run_id, self._producer = run_id, producer
        self._counters, self._notify = counters, notify
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._busy = False  # a message is on its way
        self._ending = False
        self._abandoned = threading.Event()
        self._sequence = self._total_rows = 0
        self._client: ChannelClient | None = None
        self._thread = StoppableThread(
            f"send {spec.name}", self._run, self._wake
        ).start()

    # The producing side.

    def put(
        self,
        record: Nest,
        rows: int,
        timeout: float,
        version: int = -1,
        round: int = -1,
        owner: int = 0,
    ) -> bool:
        """Hands over an item; False when there was no room within `timeout` s.

        It is for no older incarnation of the channel's owner than `owner`: a dead one
        may seem to be there still, and what is put to it is lost. Arrays belong to the
        sender from here on. Raises ValueError when the record does not fit the channel,
        and whatever ended the thread.
        """
        specs.validate(self.spec.record, record, 1, f"channel {self.spec.name}")
        num_bytes = sum(a.nbytes for a in flatten_as(self.spec.record, record))
        tags = Tags(version, round, owner)
        item = Item(record, rows, num_bytes, tags, time.monotonic())
        with self._changed:
            self._changed.wait_for(self._has_room_or_died, timeout)
            self._thread.check()
            if self._ending or len(self._items) >= self.settings.capacity:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def _has_room_or_died(self) -> bool:
        return not self._thread.alive or len(self._items) < self.settings.capacity

    def refuse(self, rows: int) -> None:
        """Counts rows that could not be handed over before the end."""
        self._note(REFUSED, 0, rows)
        self._counters.add(f"sent/{self.spec.name}", rows)
        self._counters.add(f"lost/{self.spec.name}", rows)

    def _note(self, what: str, sequence: int, rows: int) -> None:
        if self._trace is not None and rows:
            self._trace.note(
                what,
                self.spec.queue_name,
                f"{self.address.job}/{self.address.index}",
                self._producer,
                sequence,
                rows,
            )

    def rows_tried(self) -> dict[str, tuple[int, int]]:
        """By owner ("job/task/incarnation"), the rows that were put, or may have been,
        and how many of them were given up without knowing."""
        with self._tried_lock:
            return dict(self._tried)

    @property
    def has_room(self) -> bool:
        """Whether `put` would succeed at once. Raises what ended the thread."""
        self._thread.check()
        return len(self._items) < self.settings.capacity

    @property
    def size(self) -> int:
        """Items that wait locally."""
        return len(self._items)

    def flush(self, timeout: float) -> bool:
        """Waits until every item has been delivered or refused; False if not yet."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout) and self._idle()

    def _is_idle(self) -> bool:
        return not self._thread.alive or self._idle()

    def _idle(self) -> bool:
        self._thread.check()
        return not self._items and not self._busy

    def end(self) -> None:
        """Asks the thread to deliver what waits, then END; does not wait."""
        self._ending = True
        self._wake()

    def abandon(self) -> None:
        """The owner is lost: nothing is tried again, what waits is counted as lost. The
        attempt that is under way keeps its `put_timeout_secs`; does not wait."""
        self._abandoned.set()
        self.end()

    @property
    def alive(self) -> bool:
        """Whether the thread still has something to deliver."""
        return self._thread.alive

    def wait(self, timeout: float) -> None:
        """Waits until the thread has ended, at most `timeout` s; raises nothing."""
        with self._changed:
            self._changed.wait_for(lambda: not self._thread.alive, timeout)

    def join(self, timeout: float) -> None:
        """After `end`: waits until END is delivered or refused. Past `timeout` s the
        sender is abandoned. Raises what ended the thread."""
        try:
            self._thread.join(timeout)
        except TimeoutError:
            self.abandon()
            self._thread.join(self.settings.put_timeout_secs + _CLOSE_SECS)

    # The sending thread.

    def _run(self, stopping: threading.Event) -> None:
        try:
            while (items := self._next_items()) is not None:
                record = concatenate([item.record for item in items])
                rows = sum(item.rows for item in items)
                self._send(DATA, record, rows, items[0].tags)
                self._busy = False
                self._wake()
            self._send(END, self.spec.empty(), 0, Tags())
        finally:
            self._drop_client()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._notify()

    def _next_items(self) -> list[Item] | None:
        """Items for one message, or None once there are no more to come."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ending)
            if not self._items:
                return None
            self._wait_for_company(self._items[0].arrived)
            items = take_message(self._items, self.settings.max_message_bytes)
            self._busy = True
            self._changed.notify_all()
        self._notify()
        return items

    def _wait_for_company(self, arrived: float) -> None:
        delay = arrived + self.settings.max_delay_secs - time.monotonic()
        if delay > 0:
            self._changed.wait_for(self._has_company, delay)

    def _has_company(self) -> bool:
        num_bytes = sum(item.num_bytes for item in self._items)
        return (
            self._ending
            or len(self._items) >= self.settings.capacity
            or num_bytes >= self.settings.max_message_bytes
        )

    def _send(self, kind: int, record: Nest, rows: int, tags: Tags) -> None:
        self._sequence += 1
        self._total_rows += rows
        header = self._producer.header(
            kind, self._sequence, rows, self._total_rows, tags.version, tags.round
        )
        self._deliver(self.spec.pack(header, record), self._sequence, rows, tags.owner)

    def _deliver(
        self, components: list[np.ndarray], sequence: int, rows: int, oldest: int
    ) -> None:
        """Repeats the message until it has arrived, or cannot any more; it may go to
        incarnation `oldest` of the owner, and to newer ones."""
        backoff, bound_to, owner = 0.1, None, ""
        while not self._abandoned.is_set():
            try:
                client = self._open(oldest)
                if bound_to is None:
                    bound_to = client.readiness.incarnation
                    self._note(SENT, sequence, rows)
                    self._counters.add(f"sent/{self.spec.name}", rows)
                    owner = f"{client.readiness.owner}/{bound_to}"
                    self._count_tried(owner, rows, 0)
                elif bound_to != client.readiness.incarnation:
                    break  # its host died, and may have counted it
                client.put(components, self.settings.put_timeout_secs)
                return
            except TimeoutError:
                backoff = 0.1
            except ChannelClosed:
                self._drop_client()
                break
            except PeerUnreachable:
                self._drop_client()
                self._abandoned.wait(backoff)
                backoff = min(2 * backoff, self.settings.max_backoff_secs)
        if bound_to is None:
            self.refuse(rows)
        else:
            self._count_tried(owner, 0, rows)

    def _count_tried(self, owner: str, rows: int, unsure: int) -> None:
        if rows or unsure:
            with self._tried_lock:
                before = self._tried.get(owner, (0, 0))
                self._tried[owner] = before[0] + rows, before[1] + unsure

    def _open(self, oldest: int) -> ChannelClient:
        """Raises PeerUnreachable while the owner is none or older than `oldest`."""
        if self._client is not None and self._client.readiness.incarnation < oldest:
            self._drop_client()
        if self._client is None:
            timeout = self.settings.open_timeout_secs
            self._client = ChannelClient(
                self.spec, self.address, self._run_id, timeout, self._abandoned
            )
        if self._client.readiness.incarnation < oldest:
            raise PeerUnreachable(f"{self.address}: its successor is not there yet")
        return self._client

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
