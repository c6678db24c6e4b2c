"""Who may look at parameters, and when: between updates."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class UpdateGate:
    """Counts updates, and keeps readers out while one is made.

    A reader that waits comes before the next update, so a thread that updates without
    a pause cannot starve it. Readers should be short.
    """

    def __init__(self, version: int = 0):
        self._changed = threading.Condition()
        self._updating = False
        self._readers = 0
        self._version = version
        self._failure: BaseException | None = None

    @property
    def version(self) -> int:
        """The number of finished updates, on top of the first version."""
        return self._version

    @contextlib.contextmanager
    def update(self) -> Iterator[None]:
        """One update at a time; a block that raises is none, and readers raise it."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._updating or self._readers))
            self._updating = True
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            with self._changed:
                self._updating, self._failure = False, failure
                self._version += failure is None
                self._changed.notify_all()

    @contextlib.contextmanager
    def read(self, timeout: float) -> Iterator[int]:
        """The version, which stays within the block.

        Raises TimeoutError if an update goes on for more than `timeout` s, and what the
        last update raised: it may have left anything behind.
        """
        with self._changed:
            self._readers += 1
            free = self._changed.wait_for(lambda: not self._updating, timeout)
        try:
            if not free:
                raise TimeoutError(f"an update took more than {timeout:.1f} s")
            if self._failure is not None:
                raise self._failure
            yield self._version
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()
