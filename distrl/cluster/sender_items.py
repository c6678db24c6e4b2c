"""What waits at a sender, and how it becomes messages."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from distrl.core.specs import Nest


class SenderSettings(NamedTuple):
    """Limits of a ProxySender."""

    capacity: int = 4  # items that wait locally before `put` waits
    max_message_bytes: int = 1 << 20  # waiting items are joined up to this size
    max_delay_secs: float = 0.0  # how long an item may wait for others to join it
    put_timeout_secs: float = 2.0  # of one attempt; a full queue is tried again
    open_timeout_secs: float = 10.0  # of one attempt to open the channel
    max_backoff_secs: float = 2.0


class Tags(NamedTuple):
    """What is said of all rows of a message."""

    version: int = -1
    round: int = -1
    owner: int = 0  # the oldest incarnation of the channel's owner that it may go to


class Item(NamedTuple):
    """A record that was handed over."""

    record: Nest
    rows: int
    num_bytes: int
    tags: Tags
    arrived: float  # monotonic


def take_message(items: deque[Item], max_bytes: int) -> list[Item]:
    """Takes off the items of the next message: the first one, and those behind it with
    the same tags, up to a size."""
    taken = [items.popleft()]
    size = taken[0].num_bytes
    while items and items[0].tags == taken[0].tags:
        size += items[0].num_bytes
        if size > max_bytes:
            break
        taken.append(items.popleft())
    return taken
