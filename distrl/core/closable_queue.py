"""A bounded queue between threads whose end wakes everybody."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from distrl.core.errors import DistrlError

T = TypeVar("T")


class QueueClosed(DistrlError):
    """The queue was closed, in order."""


class ClosableQueue(Generic[T]):
    """First in, first out, `capacity` items at most (None: its users bound it).

    Closing drops what waits and wakes who waits: it is what ends a thread that has
    nothing to do, or nowhere to put what it did. So no wait needs a period at which it
    looks for an end.
    """

    def __init__(self, capacity: int | None = None):
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed: BaseException | None = None

    def put(self, item: T, timeout: float | None = None) -> None:
        """Waits for room, `timeout` s at most (None: until it is closed).

        Raises TimeoutError, or what the queue was closed with.
        """
        with self._changed:
            if not self._changed.wait_for(self._has_room, timeout):
                raise TimeoutError(f"no room in the queue within {timeout:.1f} s")
            self._check()
            self._items.append(item)
            self._changed.notify_all()

    def offer(self, item: T) -> bool:
        """Puts an item without waiting; False if there is no room, or never again."""
        with self._changed:
            if self._closed is not None or not self._has_room():
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def get(self, timeout: float | None = None) -> T:
        """Waits for an item, `timeout` s at most (None: until it is closed).

        Raises TimeoutError, or what the queue was closed with.
        """
        with self._changed:
            if not self._changed.wait_for(self._has_news, timeout):
                raise TimeoutError(f"nothing in the queue within {timeout:.1f} s")
            self._check()
            self._changed.notify_all()
            return self._items.popleft()

    def close(self, error: BaseException | None = None) -> None:
        """From now on every call raises `error`, by default QueueClosed.

        The first close decides.
        """
        with self._changed:
            if self._closed is None:
                self._closed = error or QueueClosed("the queue is closed")
            self._items.clear()
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._items)

    def _has_room(self) -> bool:
        """Also once it is closed: it is empty then."""
        return self._capacity is None or len(self._items) < self._capacity

    def _has_news(self) -> bool:
        return self._closed is not None or bool(self._items)

    def _check(self) -> None:
        if self._closed is not None:
            raise self._closed
